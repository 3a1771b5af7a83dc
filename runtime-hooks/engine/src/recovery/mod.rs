//! Undoes the changes of an operation that was begun and not ended.
//!
//! Before an operation changes anything it starts a [`keeper`]: this program once more, in a
//! session and a cgroup of its own. If the operation is killed, or leaves processes behind that do
//! not answer the driver, its keeper brings the container back to how it was found ([`recover`]).
//! If the keeper was killed as well, the next operation on the container does so ([`begin`]), or
//! `stasis recover`.
//!
//! An operation does not wait for a stopped process, but its driver calls may still take effect
//! there: locked processes stay locked, and a pending lock takes effect if the process continues
//! before its caller has ended (measured on driver 580.159). The keeper waits for such a process
//! without the lock of the container, and gives all processes their GPU back once all can answer.
//! It also waits for room on a GPU that other processes have filled meanwhile ([`waiting`]).

mod begin;
mod checkpoint;
pub(crate) mod end;
pub mod keeper;
pub mod report;
pub(crate) mod rollback;
pub(crate) mod shared;
pub mod waiting;

use std::sync::Arc;

use stasis_linux::cgroup::FreezerState;

use crate::container::Container;
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::error::pending_recovery::PendingRecovery;
use crate::operation::undo::{Begun, Undo};
use crate::operation::{Intent, Operation};
use crate::preflight::cuda_processes::open_driver;
pub use begin::begin;
pub use begin::{begin_recovery, begin_to_start, begin_within, take_up};
pub(crate) use checkpoint::remove_staged;
use rollback::{Changed, RolledBack, roll_back};
use stasis_gpu::cuda::failure::{Cause, ProcessFailure, Step};
use stasis_gpu::gpu_path;

/// Undoes an operation's changes, once all processes that it had started have ended. Returns the
/// container's state.
///
/// Asks the driver for the state of each process, and does not depend on the step at which the
/// operation was killed; so it may itself be interrupted at any point, and repeated.
pub(crate) fn recover(context: &Context, operation: &Operation, undo: &Undo) -> RolledBack {
    if let Begun::Restore(restore) = &undo.begun {
        return match &restore.shared {
            Some(outcome) => {
                shared::restore::recover(context, operation, &undo.id, restore, outcome)
            }
            // Its processes are ended, wherever code of ours waits in them.
            None => end::of_restore(context, operation, &undo.id, restore).into(),
        };
    }
    // Code of ours that stays in a process is harmless: its calls work as by the driver alone.
    let _ = gpu_path::put_back(operation.directory());
    match &undo.begun {
        Begun::Checkpoint {
            shared: Some(outcome),
            ..
        } => shared::recover(context, operation, undo, outcome),
        begun => match undo.container(context) {
            Ok(Some(container)) => bring_back(context, operation, &container, begun),
            Ok(None) => checkpoint::has_ended(context, operation, undo).into(),
            Err(error) => AfterFailure::Unknown(error).into(),
        },
    }
}

fn bring_back(
    context: &Context,
    operation: &Operation,
    container: &Container,
    begun: &Begun,
) -> RolledBack {
    let found = match begun {
        Begun::Checkpoint { found, image, .. } => {
            if let Some(image) = image {
                checkpoint::give_up(context, operation, container, image);
            }
            *found
        }
        // A resume is completed: its caller may ignore that it was killed, and never resume again.
        Begun::Resume | Begun::Suspend | Begun::Waiting | Begun::Restore(_) => FreezerState::Thawed,
    };
    let mut intent = match operation.recorded() {
        // No driver call has been made: not even a driver is needed.
        Ok(None) => return reach(operation, container, found).into(),
        Ok(Some(intent)) if *begun == Begun::Resume => intent.resumed(),
        Ok(Some(intent)) => intent,
        Err(_) => return unreached(operation, container, Cause::Unrecorded).into(),
    };
    intent.freezer = found;
    let Ok(driver) = open_driver(context, container.id()) else {
        return unreached(operation, container, Cause::NoDriver).into();
    };
    let driver = driver.with_room(Arc::new(operation.gpu_memory(context)));
    let changed = Changed {
        operation,
        container,
        driver: &driver,
        intent: &intent,
    };
    roll_back(&changed, Vec::new())
}

/// Restores the freezer's state, which is all that the operation can have changed.
pub(crate) fn reach(
    operation: &Operation,
    container: &Container,
    found: FreezerState,
) -> AfterFailure {
    let cgroup = container.cgroup();
    // A killed CRIU leaves the cgroup frozen.
    match cgroup.reach(found) {
        Err(error) if !container.init().is_gone() => AfterFailure::Freezer(error),
        _ => {
            operation.clear();
            AfterFailure::AsBefore(found)
        }
    }
}

/// Leaves a container whose driver or record cannot be read now to the keeper. Nothing is known to
/// be lost.
fn unreached(operation: &Operation, container: &Container, cause: Cause) -> AfterFailure {
    let failure = ProcessFailure::of(Step::Query, container.init(), cause);
    AfterFailure::Held(PendingRecovery {
        processes: vec![failure],
        recovery: operation.leave_to_keeper(),
    })
}

/// Leaves processes that could not be brought back to the intent's state to the keeper, if one of
/// them merely does not answer now, or lacks room.
///
/// # Errors
/// Returns `lost` if waiting does not help all of the processes, or there are none.
pub(crate) fn hand_over(
    operation: &Operation,
    intent: &Intent,
    lost: Vec<ProcessFailure>,
) -> Result<PendingRecovery, Vec<ProcessFailure>> {
    if !lost.iter().any(ProcessFailure::may_pass) {
        return Err(lost);
    }
    let recovery = operation.hand_over(intent);
    if !lost.iter().all(ProcessFailure::may_pass) {
        return Err(lost);
    }
    let processes = lost;
    Ok(PendingRecovery {
        processes,
        recovery,
    })
}
