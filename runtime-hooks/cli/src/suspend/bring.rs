//! Moves a container's GPU contents to host memory or back, with a line in `operations.log`.

use std::time::{Instant, SystemTime};

use stasis_config::Settings;
use stasis_engine::error::chain;
use stasis_engine::error::kind::Diagnosis;
use stasis_engine::error::operations_log::{Failed, write_afterwards};
use stasis_engine::operation::timeline::Timeline;
use stasis_engine::operation::{Intent, peek};
use stasis_engine::suspend::{Asked, Change, Done, Order, carry_out};
use stasis_gpu::cuda::GpuMap;
use stasis_gpu::cuda::gpu_use::gpu_bytes;
use stasis_host::cancel::Cancel;
use stasis_locate::Located;

use super::Goal;
use super::outcome::Outcome;

/// Brings a container to its goal. A failed step has brought back all processes, except those for
/// which it names a failure.
pub(super) fn bring(
    settings: &Settings,
    name: &str,
    located: Located,
    goal: Goal,
    cancel: Cancel,
) -> Outcome {
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
    let context = located.context(settings.clone(), cancel);
    let changed = carry_out(context, located.container, order, &mut done);
    let took = start.elapsed();
    let bytes = before.max(held());
    let mut timeline = Timeline::default();
    timeline.add(goal.verb(), took, Some(bytes).filter(|bytes| *bytes > 0));
    for ran in &done.hooks {
        ran.add_to(&mut timeline, goal.verb());
    }
    done.notes.iter().for_each(|note| timeline.note(note));
    let log = |failed| {
        let log_dir = &settings.paths.log_dir;
        write_afterwards(log_dir, goal.verb(), &id, began, &timeline, failed);
    };
    match changed {
        Ok(change) => {
            if change == Change::Made {
                log(None);
            }
            Outcome::changed(name, &id, change, (bytes, took), done.notes)
        }
        Err(error) => {
            let (text, diagnosis) = (chain(&error), Diagnosis::new(error.kind(), error.state()));
            log(Some(Failed::new(&text, diagnosis)));
            Outcome::failed(name, Some(&id), text, diagnosis)
        }
    }
}
