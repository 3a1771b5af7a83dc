//! Rolls back a checkpoint that failed at any step.

use stasis_linux::Snapshot;
use stasis_linux::cgroup::{FreezerError, FreezerState};

use crate::checkpoint::plan::Plan;
use crate::container::ContainerError;
use crate::cuda::failure::{Cause, ProcessFailure, Step};
use crate::cuda::process_set::bring_back;
use crate::cuda::stopped::Stop;
use crate::error::after_failure::AfterFailure;
use crate::operation::Intent;
use crate::recovery;

/// Brings every CUDA process of the container, and its freezer, back to how they were found. It
/// queries the driver for each process's state instead of keeping a journal of steps, so it is the
/// same for every step, and also finds processes that appeared meanwhile. `failed` are processes
/// that the failed step could not bring back itself; they are tried once more.
#[must_use]
pub(crate) fn roll_back(
    plan: &Plan<'_>,
    intent: &Intent,
    failed: Vec<ProcessFailure>,
) -> AfterFailure {
    let has_ended = || plan.container.init().is_gone();
    // The driver cannot restore a frozen process.
    if let Err(error) = plan.container.cgroup().thaw()
        && !has_ended()
    {
        return still_frozen(plan, error);
    }
    let snapshot = match plan.container.snapshot() {
        Ok(snapshot) => snapshot,
        // The cgroup of a container that has ended may be gone.
        Err(_) if has_ended() => Snapshot::default(),
        Err(error) => return AfterFailure::Unknown(ContainerError::Processes(error)),
    };
    let lost = still_lost(
        failed,
        bring_back(&plan.driver, snapshot.candidates(), &intent.as_found()),
    );
    if has_ended() {
        plan.operation.clear();
        return AfterFailure::Ended;
    }
    let refrozen = match plan.found {
        FreezerState::Frozen => plan.container.cgroup().freeze(),
        FreezerState::Thawed => Ok(()),
    };
    if !lost.is_empty() {
        let left = recovery::start_recovery(plan.context, &plan.operation, &plan.container, lost);
        return left.map_or_else(AfterFailure::Lost, AfterFailure::PendingRecovery);
    }
    if let Err(error) = refrozen {
        return AfterFailure::Freezer(error);
    }
    // A record that cannot be written says the same of what stays suspended.
    let _ = plan.operation.settle(intent.clone());
    if intent.keeps_some_off_gpu() {
        AfterFailure::AsBefore(plan.found)
    } else {
        AfterFailure::Unharmed(plan.found)
    }
}

/// A cgroup above the container's was frozen meanwhile.
fn still_frozen(plan: &Plan<'_>, error: FreezerError) -> AfterFailure {
    if !matches!(error, FreezerError::Timeout { .. }) {
        return AfterFailure::Freezer(error);
    }
    if plan.found == FreezerState::Frozen {
        // Restores the container's own freezer state, which counts once that cgroup is thawed.
        let _ = plan.container.cgroup().freeze();
    }
    let cause = Cause::Stopped(Stop::FrozenAbove);
    let held = vec![ProcessFailure::of(
        Step::Query,
        plan.container.init(),
        cause,
    )];
    let left = recovery::start_recovery(plan.context, &plan.operation, &plan.container, held);
    left.map_or_else(AfterFailure::Lost, AfterFailure::Held)
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
