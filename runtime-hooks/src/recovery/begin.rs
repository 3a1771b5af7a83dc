//! Begins an operation on a container, after what a killed one has left.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::operation::undo::Undo;
use crate::operation::{Holder, Operation, OperationError};
use crate::recovery::report::{Recovered, Report, recover_and_report};
use crate::recovery::waiting::waits_for;

/// How long an operation waits for a recovery that is under way.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Takes the lock of a container. If what an earlier operation has left is being undone, waits for
/// that; if the keeper was killed, too, undoes first what is left to undo.
pub fn begin(context: &Context, id: &str) -> Result<Operation, OperationError> {
    begin_within(Duration::ZERO, context, id)
}

/// The same, and waits up to `wait` for whoever works on the container.
pub(crate) fn begin_within(
    wait: Duration,
    context: &Context,
    id: &str,
) -> Result<Operation, OperationError> {
    let operation = begin_to_start(wait, context, id)?;
    if operation.awaited_start()?.is_some() {
        // What cannot be read may well be there.
        if !matches!(context.container(id), Ok(None)) {
            return Err(OperationError::NotStarted);
        }
        operation.awaits_no_start();
    }
    Ok(operation)
}

/// The same for a container that may wait for its start, as nobody else may touch it before.
pub(crate) fn begin_to_start(
    wait: Duration,
    context: &Context,
    id: &str,
) -> Result<Operation, OperationError> {
    let began = Instant::now();
    let for_recovery = wait.max(PATIENCE);
    let may_wait = |holder: &Holder| {
        let limit = if holder.ends_soon() {
            for_recovery
        } else {
            wait
        };
        began.elapsed() < limit && !context.cancel.requested()
    };
    loop {
        let state_dir = &context.settings.paths.state_dir;
        let operation = match Operation::begin(state_dir, &context.root, id) {
            Err(OperationError::Busy { holder }) if may_wait(&holder) => {
                sleep(POLL);
                continue;
            }
            begun => begun?,
        };
        match operation.left_behind()? {
            // Who does not answer yet, or lacks room, has a keeper that waits for that.
            Some(undo) if waits_for(&undo.context(context.cancel.clone()), &undo).is_none() => {
                operation.wait_for_orphans(&undo, for_recovery)?;
                match take_up(&operation, &undo)? {
                    Recovered::NotYet(error) if began.elapsed() >= wait => {
                        return Err(OperationError::Unfinished(error.to_string()));
                    }
                    _ => {}
                }
            }
            _ => return Ok(operation),
        }
    }
}

/// Takes the lock of the container that has this directory, to undo what is left there. Waits for
/// whoever tries to do so just now: a keeper that waits for room looks after it every few seconds.
pub(crate) fn begin_recovery(directory: &Path) -> Result<Operation, OperationError> {
    let began = Instant::now();
    loop {
        match Operation::begin_recovery(directory.to_owned()) {
            Err(OperationError::Busy { holder })
                if holder.ends_soon() && began.elapsed() < PATIENCE =>
            {
                sleep(POLL);
            }
            begun => return begun,
        }
    }
}

/// Undoes what a killed operation, whose keeper was killed as well, has left.
pub(crate) fn take_up(operation: &Operation, undo: &Undo) -> Result<Recovered, OperationError> {
    operation.wait_for_orphans(undo, PATIENCE)?;
    // This process may be killed in its turn, or leave processes that do not answer.
    operation.keep(undo.clone())?;
    Ok(recover_and_report(operation, undo, Report::Always))
}
