//! A checkpoint that was killed, and is one of several that have one outcome: what their parent has
//! decided.

pub(crate) mod restore;

use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_gpu::cuda::failure::{Cause, ProcessFailure, Step};
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::FreezerState;

use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::low_level;
use crate::operation::Operation;
use crate::operation::outcome::{Decision, SharedOutcome};
use crate::operation::undo::{Begun, Undo};
use crate::recovery::bring_back;
use crate::recovery::checkpoint::{commit, discard, has_ended};
use crate::recovery::rollback::RolledBack;
use crate::request::AfterDump;

/// How long processes may take to end after SIGKILL: the kernel releases their memory first.
const ENDING: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Waits for the decision and carries it out, as the checkpoint would have.
pub(super) fn recover(
    context: &Context,
    operation: &Operation,
    undo: &Undo,
    outcome: &SharedOutcome,
) -> RolledBack {
    let unknown = |error| AfterFailure::Unknown(ContainerError::Processes(error)).into();
    let decision = match outcome.wait_for_decision(context.settings.deadlines.group()) {
        Ok(decision) => decision,
        Err(error) => return unknown(error),
    };
    match (decision, undo.container(context)) {
        (_, Err(error)) => AfterFailure::Unknown(error).into(),
        (Decision::Complete, Ok(None)) => has_ended(context, operation, undo).into(),
        (Decision::Complete, Ok(Some(container))) => {
            go_forward(context, operation, undo, outcome, &container)
        }
        (Decision::Abandoned, Ok(Some(container))) => {
            bring_back(context, operation, &container, &undo.begun)
        }
        (Decision::Abandoned, Ok(None)) => {
            if let Begun::Checkpoint {
                image: Some(image), ..
            } = &undo.begun
            {
                discard(context, operation, image);
            }
            operation.clear();
            AfterFailure::Ended.into()
        }
    }
}

/// All images are complete.
fn go_forward(
    context: &Context,
    operation: &Operation,
    undo: &Undo,
    outcome: &SharedOutcome,
    container: &Container,
) -> RolledBack {
    let Begun::Checkpoint { found, image, .. } = &undo.begun else {
        return has_ended(context, operation, undo).into();
    };
    if let Some(image) = image {
        commit(context, operation, undo, image);
    }
    match outcome.after {
        AfterDump::LeaveRunning => {
            let begun = Begun::Checkpoint {
                found: *found,
                image: None,
                shared: None,
            };
            bring_back(context, operation, container, &begun)
        }
        AfterDump::Exit => match end(context, container, outcome) {
            Ok(()) => has_ended(context, operation, undo).into(),
            Err(left) => AfterFailure::NotEnded(left.pid).into(),
        },
    }
}

/// Ends a container of which there is an image, as CRIU does. No process of it runs any more: each
/// is killed before a freezer of version 1, which would hold it, is thawed.
///
/// # Errors
/// Its first process has not ended; or the decision is not on disk, and nothing is ended.
pub(crate) fn end(
    context: &Context,
    container: &Container,
    outcome: &SharedOutcome,
) -> Result<(), ProcessFailure> {
    let (init, cgroup) = (container.init(), container.cgroup());
    // Without it a machine that restarts has neither the containers nor their images.
    let synced = outcome.sync();
    synced.map_err(|error| ProcessFailure::of(Step::Query, init, Cause::Io(error)))?;
    let deadline = Instant::now() + ENDING;
    let left = || cgroup.pids().unwrap_or_default();
    while !(init.is_gone() && left().is_empty()) {
        if Instant::now() > deadline {
            return Err(ProcessFailure::of(
                Step::Query,
                init,
                Cause::NoAnswer(ENDING),
            ));
        }
        for pid in left() {
            if let Ok(Some(process)) = ProcessRef::open(pid)
                // The pid may have become another process's.
                && left().contains(&pid)
            {
                let _ = process.kill();
            }
        }
        let _ = cgroup.request(FreezerState::Thawed);
        sleep(POLL);
    }
    if outcome.engine.is_none() {
        let limit = context.settings.deadlines.stalled();
        low_level::delete(&context.low_level, &context.root, container.id(), limit);
    }
    Ok(())
}
