//! Brings a container's CUDA processes and its freezer back to how they were found.

use stasis_linux::Snapshot;
use stasis_linux::cgroup::{FreezerError, FreezerState};

use crate::container::{Container, ContainerError};
use crate::cuda::Driver;
use crate::cuda::failure::{Cause, ProcessFailure, Step};
use crate::cuda::process_set::bring_back;
use crate::cuda::stopped::Stop;
use crate::error::after_failure::AfterFailure;
use crate::gpu_path::hole;
use crate::low_level::hook::owed::{RanHook, wake};
use crate::operation::timeline::Timeline;
use crate::operation::{Intent, Operation};
use crate::recovery::hand_over;

/// A container that an operation has changed.
pub(crate) struct Changed<'a> {
    pub(crate) operation: &'a Operation,
    pub(crate) container: &'a Container,
    pub(crate) driver: &'a dyn Driver,
    /// How it was found.
    pub(crate) intent: &'a Intent,
}

/// What has become of a container that was rolled back.
#[derive(Debug)]
#[must_use]
pub(crate) struct RolledBack {
    after_failure: AfterFailure,
    /// The hook by which its program was told so.
    woken: Option<RanHook>,
}

impl RolledBack {
    /// How the container is now. Tells the log of the hook, as a part of the phase of the
    /// roll-back.
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

/// Brings every CUDA process of the container, and its freezer, back to how they were found. It
/// queries the driver for each process's state instead of keeping a journal of steps, so it is the
/// same for every step, and also finds processes that appeared meanwhile. `failed` are processes
/// that the failed step could not bring back itself; they are tried once more. If all are back, the
/// program is told so, if it was told of the checkpoint.
pub(crate) fn roll_back(changed: &Changed<'_>, failed: Vec<ProcessFailure>) -> RolledBack {
    let has_ended = || changed.container.init().is_gone();
    // The driver cannot restore a frozen process.
    if let Err(error) = changed.container.cgroup().thaw()
        && !has_ended()
    {
        return still_frozen(changed, error).into();
    }
    // A process that lacks its GPU contents is not restored, and left to the keeper.
    let _ = hole::give_back(changed.operation.directory());
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
            &changed.intent.as_found(),
        ),
    );
    if has_ended() {
        changed.operation.clear();
        return AfterFailure::Ended.into();
    }
    let is_whole = lost.is_empty() && !changed.intent.keeps_some_off_gpu();
    let woken = is_whole.then(|| wake(changed.operation, changed.container));
    RolledBack {
        woken: woken.flatten(),
        after_failure: leave_as_found(changed, lost),
    }
}

/// Those that are `lost` are left to the keeper.
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
    // A record that cannot be written says the same of what stays suspended.
    let _ = changed.operation.settle(changed.intent.clone());
    if changed.intent.keeps_some_off_gpu() {
        AfterFailure::AsBefore(changed.intent.freezer)
    } else {
        AfterFailure::Unharmed(changed.intent.freezer)
    }
}

/// A cgroup above the container's was frozen meanwhile.
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
    // Those did not answer; the second error says why the process is lost now.
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
