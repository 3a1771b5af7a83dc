//! The recovery process, from its start to its end (`recovery/mod.rs` explains its purpose).

use std::io;
use std::time::{Duration, SystemTime};

use stasis_config::Settings;
use stasis_linux::ProcessRef;

use crate::container::Container;
use crate::context::Context;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::process_set::{bring_back, can_be_queried};
use crate::cuda::watchdog::WatchedDriver;
use crate::error::after_failure::AfterFailure;
use crate::error::operations_log;
use crate::error::{Error, Failure};
use crate::host::cancel::Cancel;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::verb::Verb;
use crate::operation::{Intent, Operation, OperationError, peek};
use crate::preflight::cuda_processes::open_driver;
use crate::recovery::RecoveryJob;

/// The first and the longest pause between two polls.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The result of a poll.
enum Poll {
    /// Nothing is left to wait for.
    Over,
    /// Not every process can answer, or another operation works on the container.
    NotYet,
}

/// Carries a job out.
///
/// # Errors
/// The container, the driver or the signals cannot be used. The intent stays, and the next
/// operation on the container recovers its processes.
pub fn run(job: RecoveryJob) -> io::Result<()> {
    let Some(init) = ProcessRef::open(job.init)? else {
        return Ok(());
    };
    let watch = Watch::begin(job)?;
    let mut pause = FIRST_PAUSE;
    // `Watch::container` compares the start time at each poll.
    while init.outlives(pause)? {
        pause = (pause * 2).min(LONGEST_PAUSE);
        if watch.context.cancel.requested() || matches!(watch.poll(), Poll::Over) {
            return Ok(());
        }
    }
    if let Ok(Some((operation, _))) = watch.take() {
        operation.clear();
    }
    Ok(())
}

struct Watch {
    job: RecoveryJob,
    context: Context,
    /// One driver for all polls: it knows which calls are still pending.
    driver: WatchedDriver,
}

impl Watch {
    fn begin(job: RecoveryJob) -> io::Result<Self> {
        let settings = Settings {
            driver: job.driver.clone(),
            deadlines: job.deadlines.clone(),
            paths: job.paths.clone(),
            ..Settings::default()
        };
        let context = Context {
            settings,
            low_level: job.low_level.clone(),
            root: job.root.clone(),
            cancel: Cancel::on_signals()?,
            began: SystemTime::now(),
        };
        let driver = open_driver(&context, &job.id).map_err(io::Error::other)?;
        Ok(Self {
            job,
            context,
            driver,
        })
    }

    fn poll(&self) -> Poll {
        let state_dir = &self.context.settings.paths.state_dir;
        let recorded = peek(state_dir, &self.context.root, &self.job.id);
        if !recorded
            .is_ok_and(|intent| intent.is_some_and(|intent| intent.is_recovered_by(self.job.token)))
        {
            return Poll::Over;
        }
        let Some(container) = self.container() else {
            return Poll::NotYet;
        };
        if !all_can_answer(&container) {
            return Poll::NotYet;
        }
        match self.take() {
            Ok(Some((operation, intent))) => self.give_back(&container, &operation, intent),
            Ok(None) => Poll::Over,
            Err(_) => Poll::NotYet,
        }
    }

    /// Loads the container of the job. `None` for another container with the same id.
    fn container(&self) -> Option<Container> {
        let found = self.context.container(&self.job.id).ok()??;
        let same = found.init().start_time() == self.job.init_start_time;
        same.then_some(found)
    }

    /// Takes the container's lock, if its intent still has this job's token.
    fn take(&self) -> Result<Option<(Operation, Intent)>, OperationError> {
        let state_dir = &self.context.settings.paths.state_dir;
        let operation = Operation::begin(state_dir, &self.context.root, &self.job.id)?;
        let intent = operation.recorded()?;
        let ours = intent.filter(|intent| intent.is_recovered_by(self.job.token));
        Ok(ours.map(|intent| (operation, intent)))
    }

    fn give_back(&self, container: &Container, operation: &Operation, intent: Intent) -> Poll {
        let progress = Progress::begin(&self.context, operation, Verb::Recover);
        let mut timeline = Timeline::with_progress(progress);
        let lost = timeline.time("give back", || match container.snapshot() {
            Ok(snapshot) => bring_back(&self.driver, snapshot.candidates(), &intent.as_found()),
            Err(error) => vec![ProcessFailure::of_query(container.init(), error)],
        });
        if container.init().is_gone()
            || !lost.is_empty() && lost.iter().all(ProcessFailure::may_pass)
        {
            return Poll::NotYet;
        }
        let error = lost.into_iter().next().map(|fault| {
            let after_failure = AfterFailure::Lost(Vec::new());
            Error::failed(
                Verb::Recover,
                container.id(),
                Failure::Process(fault),
                after_failure,
            )
        });
        operations_log::write(
            &self.context,
            Verb::Recover,
            container.id(),
            &timeline,
            error.as_ref(),
        );
        if error.is_none() {
            let _ = operation.settle(intent);
        }
        Poll::Over
    }
}

fn all_can_answer(container: &Container) -> bool {
    let Ok(snapshot) = container.snapshot() else {
        return false;
    };
    let mut candidates = snapshot.candidates().iter();
    matches!(container.cgroup().is_frozen_or_freezing(), Ok(false))
        && candidates.all(|process| can_be_queried(process).is_ok())
}
