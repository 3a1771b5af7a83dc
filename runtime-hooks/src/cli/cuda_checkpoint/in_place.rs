//! Suspends a container in place, and takes it up again, for `stasis suspend` and `resume`: as a
//! toggle does, but towards what is asked for, and with a line in `operations.log`.

use std::time::{Instant, SystemTime};

use stasis_config::Settings;

use super::Error;
use super::arguments::Operation as Asked;
use super::job;
use super::order::{Change, Done, Order};
use crate::cli::locate::Located;
use crate::cuda::GpuMap;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::gpu_use::gpu_bytes;
use crate::error::chain;
use crate::error::kind::{Diagnosis, Kind, State};
use crate::error::operations_log::{Failed, write_afterwards};
use crate::operation::timeline::Timeline;
use crate::operation::{Intent, peek};

/// Where the GPU contents of a container shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// In host memory: its GPUs are free.
    Suspended,
    /// On its GPUs.
    Running,
}

/// A container that is as it was asked for.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Whether it was so before.
    pub(crate) already: bool,
    /// What it holds, or held, on its GPUs.
    pub(crate) gpu_bytes: u64,
    pub(crate) seconds: f64,
    /// What was done in another way.
    pub(crate) notes: Vec<String>,
}

/// A container that is not.
#[derive(Debug)]
pub(crate) struct NotChanged {
    pub(crate) error: String,
    pub(crate) diagnosis: Diagnosis,
}

impl Goal {
    /// The operation, by its name in `operations.log`.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Suspended => "suspend",
            Self::Running => "resume",
        }
    }
}

/// Brings a container where it shall be.
///
/// # Errors
/// [`NotChanged`]; a failed step has brought back all processes that it names no failure of.
pub(crate) fn bring(
    settings: &Settings,
    located: Located,
    goal: Goal,
) -> Result<Changed, NotChanged> {
    let (began, start) = (SystemTime::now(), Instant::now());
    let (root, id) = (located.root.clone(), located.container.id().to_owned());
    let held = || {
        let recorded = peek(&settings.paths.state_dir, &root, &id).ok().flatten();
        let processes = recorded.as_ref().map(Intent::processes);
        gpu_bytes(processes.iter().flatten())
    };
    let before = held();
    let order = Order {
        asked: match goal {
            Goal::Suspended => Asked::Suspend,
            Goal::Running => Asked::TakeUp,
        },
        lock_timeout: None,
        map: GpuMap::identity(),
    };
    let mut done = Done::default();
    let answer = job::carry_out(settings.clone(), located, order, &mut done);
    let took = start.elapsed();
    let bytes = before.max(held());
    let result = match answer {
        Ok(answer) => Ok(Changed {
            already: answer.change == Change::None,
            gpu_bytes: bytes,
            seconds: took.as_secs_f64(),
            notes: done.notes.clone(),
        }),
        Err(error) => Err(NotChanged {
            diagnosis: diagnosis(&error),
            error: chain(&error),
        }),
    };
    if !matches!(&result, Ok(changed) if changed.already) {
        let mut timeline = Timeline::default();
        timeline.add(goal.verb(), took, Some(bytes).filter(|bytes| *bytes > 0));
        for ran in &done.hooks {
            ran.add_to(&mut timeline, goal.verb());
        }
        done.notes.iter().for_each(|note| timeline.note(note));
        let failed = result.as_ref().err();
        let failed = failed.map(|failed| Failed::new(&failed.error, failed.diagnosis));
        let log_dir = &settings.paths.log_dir;
        write_afterwards(log_dir, goal.verb(), &id, began, &timeline, failed);
    }
    result
}

fn diagnosis(error: &Error) -> Diagnosis {
    let state = match error.lost() {
        [] => State::Unharmed,
        lost if lost.iter().all(ProcessFailure::may_pass) => State::Waiting,
        _ => State::Lost,
    };
    Diagnosis::new(error.kind(), state)
}

impl NotChanged {
    /// Whether it may succeed later without anybody's doing: once others have made room, or have
    /// done with the container.
    pub(crate) fn may_pass(&self) -> bool {
        let kinds = [Kind::NoGpuMemory, Kind::NoHostMemory, Kind::Busy];
        self.diagnosis.state == State::Unharmed && kinds.contains(&self.diagnosis.kind)
    }
}
