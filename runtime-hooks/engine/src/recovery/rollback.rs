//! Brings a container's CUDA processes and its freezer back to the state in which they were found.

use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::failure::{Cause, ProcessFailure, Step};
use stasis_gpu::cuda::process_set::bring_back;
use stasis_gpu::cuda::stopped::Stop;
use stasis_gpu::gpu_path::detached;
use stasis_linux::Snapshot;
use stasis_linux::cgroup::{FreezerError, FreezerState};

use crate::container::{Container, ContainerError};
use crate::error::after_failure::AfterFailure;
use crate::low_level::hook::pending::{RanHook, run_after_restore};
use crate::operation::timeline::Timeline;
use crate::operation::{Intent, Operation};
use crate::recovery::hand_over;

/// A container that an operation has changed.
pub(crate) struct Changed<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) container: &'a Container,
    pub(crate) driver: &'a dyn Driver,
    /// The state in which it was found.
    pub(crate) intent: &'a Intent,
}

/// The result of rolling back a container.
#[derive(Debug)]
#[must_use]
pub(crate) struct RolledBack {
    after_failure: AfterFailure,
    /// The hook that notified its program.
    woken: Option<RanHook>,
}

impl RolledBack {
    /// Returns the container's state. Adds the hook to the log, as a part of the rollback's phase.
    pub(crate) fn tell(self, within: &str, timeline: &mut Timeline<'_>) -> AfterFailure {
        if let Some(woken) = self.woken {
            woken.tell(within, timeline);
        }
        self.after_failure
    }
}

impl From<AfterFailure> for RolledBack {
    fn from(after_failure: AfterFailure) -> Self {
        Self {
            after_failure,
            woken: None,
        }
    }
}

/// Brings every CUDA process of the container, and its freezer, back to the state in which they
/// were found. It queries the driver for each process's state instead of keeping a journal of
/// steps, so it works the same after every step, and also finds processes that appeared meanwhile.
/// `failed` are processes that the failed step could not bring back itself; they are tried once
/// more. If all are back, the program is notified, if it was notified of the checkpoint.
pub(crate) fn roll_back(changed: &Changed<'_>, failed: Vec<ProcessFailure>) -> RolledBack {
    let has_ended = || changed.container.init().is_gone();
    // The driver cannot restore a frozen process.
    if let Err(error) = changed.container.cgroup().thaw()
        && !has_ended()
    {
        return still_frozen(changed, error).into();
    }
    // A process that lacks its GPU contents is not restored, but left to the keeper.
    let _ = detached::give_back(changed.operation.directory());
    let snapshot = match changed.container.snapshot() {
        Ok(snapshot) => snapshot,
        // The cgroup of a container that has ended may be gone.
        Err(_) if has_ended() => Snapshot::default(),
        Err(error) => return AfterFailure::Unknown(ContainerError::Processes(error)).into(),
    };
    let lost = still_lost(
        failed,
        bring_back(
            changed.driver,
            snapshot.candidates(),
            &changed.intent.initial_state(),
        ),
    );
    if has_ended() {
        changed.operation.clear();
        return AfterFailure::Ended.into();
    }
    let is_whole = lost.is_empty() && !changed.intent.keeps_some_off_gpu();
    let woken = is_whole.then(|| run_after_restore(changed.operation, changed.container));
    RolledBack {
        woken: woken.flatten(),
        after_failure: leave_as_found(changed, lost),
    }
}

/// Leaves the processes in `lost` to the keeper.
fn leave_as_found(changed: &Changed<'_>, lost: Vec<ProcessFailure>) -> AfterFailure {
    let refrozen = match changed.intent.freezer {
        FreezerState::Frozen => changed.container.cgroup().freeze(),
        FreezerState::Thawed => Ok(()),
    };
    if !lost.is_empty() {
        let left = hand_over(changed.operation, changed.intent, lost);
        return left.map_or_else(AfterFailure::Lost, AfterFailure::PendingRecovery);
    }
    if let Err(error) = refrozen {
        return AfterFailure::Freezer(error);
    }
    // If the record cannot be written, the old one says the same of suspended processes.
    let _ = changed.operation.settle(changed.intent.clone());
    if changed.intent.keeps_some_off_gpu() {
        AfterFailure::AsBefore(changed.intent.freezer)
    } else {
        AfterFailure::Unharmed(changed.intent.freezer)
    }
}

/// Handles a cgroup above the container's that was frozen meanwhile.
fn still_frozen(changed: &Changed<'_>, error: FreezerError) -> AfterFailure {
    if !matches!(error, FreezerError::Timeout { .. }) {
        return AfterFailure::Freezer(error);
    }
    if changed.intent.freezer == FreezerState::Frozen {
        // Restores the container's own freezer state, which counts once that cgroup is thawed.
        let _ = changed.container.cgroup().freeze();
    }
    let cause = Cause::Stopped(Stop::from_above(changed.container.cgroup()));
    let held = vec![ProcessFailure::of(
        Step::Query,
        changed.container.init(),
        cause,
    )];
    hand_over(changed.operation, changed.intent, held)
        .map_or_else(AfterFailure::Lost, AfterFailure::Held)
}

/// The processes that the second try did not bring back either, each with its first error, which
/// says more: after a failed restore every further try returns 304 (measured on driver 580.159).
fn still_lost(mut first: Vec<ProcessFailure>, second: Vec<ProcessFailure>) -> Vec<ProcessFailure> {
    // These processes did not answer; the second error says why they are lost now.
    first.retain(|failure| !failure.may_pass());
    let mut first_of = |pid| {
        let at = first.iter().position(|failure| failure.pid == pid)?;
        Some(first.swap_remove(at))
    };
    second
        .into_iter()
        .map(|failure| first_of(failure.pid).unwrap_or(failure))
        .collect()
}
