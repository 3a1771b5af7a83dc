//! Undoing a checkpoint that failed, at whatever step.

use crate::aftermath::Aftermath;
use crate::cgroup::{FreezerError, FreezerState};
use crate::container::ContainerError;
use crate::fault::{Cause, Fault, Step};
use crate::guardian;
use crate::manifest::Manifest;
use crate::members::revive;
use crate::preflight::Plan;
use crate::stop::Stop;

/// Brings every CUDA process of the container back to RUNNING and the freezer back to what it
/// was. Asks the driver what is instead of us what we did, so it is the same for every step, and
/// finds processes that appeared meanwhile, too. `lost` are processes that the failed step could
/// not bring back itself.
#[must_use]
pub(crate) fn undo(plan: &Plan<'_>, lost: Vec<Fault>) -> Aftermath {
    // Without CRIU's part the directory is no image; without this file it cannot be taken for
    // one that has GPU state.
    let _ = Manifest::remove(&plan.options.image_path);
    let has_ended = || plan.container.init().is_gone();
    // A frozen process cannot be restored either.
    if let Err(error) = plan.container.cgroup().thaw()
        && !has_ended()
    {
        return still_frozen(plan, error);
    }
    let processes = match plan.container.processes() {
        Ok(processes) => processes,
        // The cgroup of a container that has ended may be gone with it.
        Err(_) if has_ended() => Vec::new(),
        Err(error) => return Aftermath::Unknown(ContainerError::Processes(error)),
    };
    let lost = union(lost, revive(&plan.driver, &processes));
    if has_ended() {
        plan.operation.forget();
        return Aftermath::Ended;
    }
    if plan.found == FreezerState::Frozen
        && let Err(error) = plan.container.cgroup().freeze()
    {
        return Aftermath::Freezer(error);
    }
    if !lost.is_empty() {
        let left = guardian::entrust(plan.engine, &plan.operation, &plan.container, lost);
        return left.map_or_else(Aftermath::Lost, Aftermath::Waiting);
    }
    plan.operation.forget();
    Aftermath::Unharmed(plan.found)
}

/// A cgroup above the container's has been frozen meanwhile.
fn still_frozen(plan: &Plan<'_>, error: FreezerError) -> Aftermath {
    if !matches!(error, FreezerError::Timeout { .. }) {
        return Aftermath::Freezer(error);
    }
    if plan.found == FreezerState::Frozen {
        // Its own setting, for when that one is thawed.
        let _ = plan.container.cgroup().freeze();
    }
    let cause = Cause::Stopped(Stop::FrozenAbove);
    let held = vec![Fault::of(Step::Look, plan.container.init(), cause)];
    let left = guardian::entrust(plan.engine, &plan.operation, &plan.container, held);
    left.map_or_else(Aftermath::Lost, Aftermath::Held)
}

/// The first word about a process is the telling one: after a failed restore every further try
/// says 304 (measured on driver 580.159).
fn union(mut first: Vec<Fault>, second: Vec<Fault>) -> Vec<Fault> {
    for fault in second {
        if !first.iter().any(|known| known.pid == fault.pid) {
            first.push(fault);
        }
    }
    first
}
