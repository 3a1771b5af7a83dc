//! A restore that was killed, and is one of several that have one outcome: what their parent has
//! decided.

use stasis_gpu::cuda::failure::Cause;
use stasis_gpu::gpu_path;
use stasis_linux::cgroup::FreezerState;

use crate::container::Container;
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::operation::outcome::{Decision, SharedOutcome};
use crate::operation::undo::{Restore, Stage};
use crate::operation::{Intent, Operation};
use crate::preflight::cuda_processes::open_driver;
use crate::recovery::end::of_restore;
use crate::recovery::rollback::{Changed, RolledBack, roll_back};
use crate::recovery::{reach, unreached};

/// Waits for the decision and carries it out, as the restore would have.
pub(in crate::recovery) fn recover(
    context: &Context,
    operation: &Operation,
    id: &str,
    restore: &Restore,
    outcome: &SharedOutcome,
) -> RolledBack {
    if restore.stage == Stage::Prepared {
        // All others wait for it, or are ended as well.
        return of_restore(context, operation, id, restore).into();
    }
    match outcome.wait_for_decision(context.settings.deadlines.group()) {
        Err(error) => AfterFailure::Unknown(error.into()).into(),
        Ok(Decision::Abandoned) => of_restore(context, operation, id, restore).into(),
        Ok(Decision::Complete) => match context.container(id) {
            Ok(Some(container)) => {
                // Code of ours that stays in a process is harmless.
                let _ = gpu_path::put_back(operation.directory());
                resume_restored(context, operation, &container)
            }
            Ok(None) => {
                operation.clear();
                AfterFailure::Ended.into()
            }
            Err(error) => AfterFailure::Unknown(error).into(),
        },
    }
}

/// Lets the processes of a restored container go on, from wherever that was cut off: its freezer is
/// thawed, and what is locked is unlocked.
pub(crate) fn resume_restored(
    context: &Context,
    operation: &Operation,
    container: &Container,
) -> RolledBack {
    let snapshot = container.snapshot();
    if snapshot.is_ok_and(|snapshot| snapshot.candidates().is_empty()) {
        return reach(operation, container, FreezerState::Thawed).into();
    }
    let Ok(driver) = open_driver(context, container.id()) else {
        return unreached(operation, container, Cause::NoDriver).into();
    };
    let intent = Intent {
        members: Vec::new(),
        freezer: FreezerState::Thawed,
    };
    let changed = Changed {
        operation,
        container,
        driver: &driver,
        intent: &intent,
    };
    roll_back(&changed, Vec::new())
}
