//! Ends what a failed restore has brought up: a container without its GPU state must not go on.

use std::path::Path;
use std::time::Duration;

use stasis_linux::cgroup::{Everywhere, FreezerState, criu_yard};

use crate::container::spec;
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::low_level;
use crate::operation::Operation;
use crate::operation::undo::{Restore, Stage};

/// How long processes may take to end after SIGKILL: the kernel releases its memory first.
pub(super) const ENDING: Duration = Duration::from_secs(10);

/// Removes the container with its processes, those that no record tells of yet included, and what
/// runc or crun has mounted in its bundle. Reports whether they have ended: a freezer that we do
/// not see may hold them. CRIU restores `freezer.state` in every cgroup of version 1 that it has to
/// make itself (criu/cgroup.c, `restore_freezer_state`), also in a hierarchy that is not mounted
/// here.
pub(crate) fn end(context: &Context, id: &str, restore: &Restore) -> AfterFailure {
    let container = context.container(id).ok().flatten();
    if let Some(container) = &container {
        // A process that a freezer of version 1 holds does not die of SIGKILL.
        let _ = container.cgroup().request(FreezerState::Thawed);
    }
    if let Some(left) = restore.cgroup.as_deref().and_then(kill_all) {
        // The low-level runtime would forget it, with a cgroup that it cannot remove yet.
        return AfterFailure::NotEnded(left);
    }
    let limit = context.settings.deadlines.stalled();
    low_level::delete(&context.low_level, &context.root, id, limit);
    low_level::clear_bundle(&context.low_level, &restore.bundle);
    if let Some(mounts) = &restore.mounts {
        mounts.unmount_new();
    }
    match container {
        Some(container) if !matches!(container.init().outlives(ENDING), Ok(false)) => {
            AfterFailure::NotEnded(container.init().pid())
        }
        _ => AfterFailure::Killed,
    }
}

/// Kills all processes in a cgroup; returns the pid of one that has not ended.
fn kill_all(cgroup: &Path) -> Option<i32> {
    let left = Everywhere::at(cgroup).ok()?.kill(ENDING);
    left.first().copied()
}

/// Ends what a restore that was killed has brought up, and puts its files back.
pub(super) fn of_restore(
    context: &Context,
    operation: &Operation,
    id: &str,
    restore: &Restore,
) -> AfterFailure {
    let after_failure = match restore.stage {
        Stage::Prepared => AfterFailure::NotStarted,
        Stage::Started => end(context, id, restore),
    };
    criu_yard::clear(&restore.work);
    if let Some((path, original)) = &restore.specification {
        // The changes would do no harm, but a restore that failed leaves none behind.
        let _ = spec::replace(path, original.as_bytes());
    }
    if !matches!(after_failure, AfterFailure::NotEnded(_)) {
        operation.clear();
    }
    after_failure
}
