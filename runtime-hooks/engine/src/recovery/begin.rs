//! Begins an operation on a container, after undoing a killed one.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::operation::undo::Undo;
use crate::operation::{Holder, Operation, OperationError};
use crate::recovery::end::ENDING;
use crate::recovery::report::{LogWhen, Recovered, recover_and_report};
use crate::recovery::waiting::waits_for;

/// How long an operation waits for a recovery that is under way: longer than one that waits for
/// processes which do not end.
const PATIENCE: Duration = ENDING.saturating_add(Duration::from_secs(5));
const POLL: Duration = Duration::from_millis(20);

/// Takes the lock of a container. Waits for a running recovery of an earlier operation; undoes that
/// operation first if its keeper was killed, too.
pub fn begin(context: &Context, id: &str) -> Result<Operation, OperationError> {
    begin_within(Duration::ZERO, context, id)
}

/// The same, but waits up to `wait` for another operation on the container.
pub fn begin_within(
    wait: Duration,
    context: &Context,
    id: &str,
) -> Result<Operation, OperationError> {
    let operation = begin_to_start(wait, context, id)?;
    if operation.awaited_start()?.is_some() {
        // A container that cannot be read may exist.
        if !matches!(context.container(id), Ok(None)) {
            return Err(OperationError::NotStarted);
        }
        operation.awaits_no_start();
    }
    Ok(operation)
}

/// [`begin_within`] for a `start`: only a `start` may touch a container that waits for it.
pub fn begin_to_start(
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
            // Processes that do not answer yet, or lack room, have a keeper that waits for them.
            Some(undo) if waits_for(&undo.context(context.cancel.clone()), &undo).is_none() => {
                operation.wait_for_orphans(&undo, for_recovery, || {})?;
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

/// Takes the lock of the container that has this directory, to undo its record. Waits for a running
/// try: a keeper that waits for room checks every few seconds.
pub fn begin_recovery(directory: &Path) -> Result<Operation, OperationError> {
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

/// Undoes the changes of a killed operation whose keeper was killed as well.
pub fn take_up(operation: &Operation, undo: &Undo) -> Result<Recovered, OperationError> {
    operation.wait_for_orphans(undo, PATIENCE, || {})?;
    // This process may be killed in its turn, or leave processes that do not answer.
    operation.keep(undo.clone())?;
    Ok(recover_and_report(operation, undo, LogWhen::Always))
}
