//! OCI delete: removes the records of a container together with it; with `--force` it also ends
//! the operation that is under way.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_linux::exit_status;

use crate::context::{Context, Outcome};
use crate::error::io_kind::of_io;
use crate::error::kind::Kind;
use crate::low_level;
use crate::operation::awaited_start::awaits_start;
use crate::operation::stopping;
use crate::operation::terminate::ask_to_end;
use crate::operation::{Operation, OperationError, has_directory};
use crate::recovery::{remove_staged, take_up};
use crate::request::DeleteMode;
use crate::restore::is_taken;

/// How long an operation may take to roll back. containerd gives a dead shim's `delete` 5 s for
/// everything (runtime/v2 `cleanupTimeout`); an operation that takes longer ends by itself.
const ROLL_BACK: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Why a container could not be deleted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DeleteError {
    /// An operation is still under way after SIGTERM, or its record cannot be used.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The restore's mount could not be removed, or the operation could not be asked to end.
    #[error("cannot end what is under way")]
    InTheWay(#[source] io::Error),
    /// The low-level runtime could not be started, or had to be ended.
    #[error("cannot run {path}")]
    Start { path: PathBuf, source: io::Error },
}

impl DeleteError {
    /// The kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Operation(error) => error.kind(),
            Self::InTheWay(error) => of_io(error, Kind::Io),
            Self::Start { source, .. } => of_io(source, Kind::LowLevelRuntime),
        }
    }
}

/// Deletes a container. A container without records is passed through to the low-level runtime.
pub fn delete(
    context: &Context,
    id: &str,
    mode: DeleteMode,
    args: &[OsString],
) -> Result<Outcome, DeleteError> {
    let state_dir = &context.settings.paths.state_dir;
    if mode == DeleteMode::Force {
        wait_for_image(context, id);
    }
    if !has_directory(state_dir, &context.root, id) {
        detach(context, id)?;
        return Ok(Outcome::PassThrough);
    }
    let operation = match mode {
        // An operation that is still under way clears its records when its container is gone.
        DeleteMode::Stopped => Operation::begin(state_dir, &context.root, id).ok(),
        DeleteMode::Force => Some(end_operation(context, id)?),
    };
    let operation = match operation {
        Some(operation) => {
            detach(context, id)?;
            undo_unknown(context, operation, id)?
        }
        None => None,
    };
    let limit = context.settings.deadlines.stalled();
    // Callers delete a created container without a kill before (runc's `delete` allows that), but
    // runc refuses one that waits for its start, since it is paused.
    let is_held = awaits_start(state_dir, &context.root, id);
    let held = is_held.then(|| low_level::forced_delete(&context.root, id).map(OsStr::to_owned));
    let args = held.as_ref().map_or(args, |held| held);
    let status = low_level::run_inherited(&context.low_level, args, limit).map_err(|source| {
        let path = context.low_level.path.clone();
        DeleteError::Start { path, source }
    })?;
    if let Some(operation) = operation.filter(|_| status.success()) {
        remove_staged(context, &operation);
        operation.clear();
    }
    Ok(Outcome::Done(exit_status::code(status)))
}

/// Undoes what an operation has left of a container that the low-level runtime does not know: its
/// `delete` fails, and removes nothing. Returns the operation on one that it knows.
fn undo_unknown(
    context: &Context,
    operation: Operation,
    id: &str,
) -> Result<Option<Operation>, OperationError> {
    if is_taken(context, id) {
        return Ok(Some(operation));
    }
    match operation.left_behind()? {
        Some(undo) => drop(take_up(&operation, &undo)?),
        None => {
            remove_staged(context, &operation);
            operation.clear();
        }
    }
    Ok(None)
}

/// Removes the mount of a restore: the low-level runtime's `delete` must not run while it exists.
fn detach(context: &Context, id: &str) -> Result<(), DeleteError> {
    low_level::detach_restore_mount(&context.root, id).map_err(DeleteError::InTheWay)
}

/// Waits for the image of a container that a checkpoint in the place of a signal has ended: engines
/// remove it as soon as they see its end, and the image is not on disk then.
fn wait_for_image(context: &Context, id: &str) {
    let state_dir = &context.settings.paths.state_dir;
    let deadline = Instant::now() + context.settings.deadlines.stalled();
    let is_sealed = || !stopping::is_under_way(state_dir, &context.root, id);
    let has_ended = || matches!(context.container(id), Ok(None));
    while has_ended() && !is_sealed() && Instant::now() < deadline && !context.cancel.requested() {
        sleep(POLL);
    }
}

/// Ends the operation that is under way, if any, and takes its lock.
fn end_operation(context: &Context, id: &str) -> Result<Operation, DeleteError> {
    let state_dir = &context.settings.paths.state_dir;
    let deadline = Instant::now() + ROLL_BACK;
    loop {
        let busy = match Operation::begin(state_dir, &context.root, id) {
            Err(busy @ OperationError::Busy { .. }) => busy,
            other => return Ok(other?),
        };
        if Instant::now() > deadline {
            return Err(busy.into());
        }
        // Each time, since the holder's pid may not have been written yet; and before the
        // container is ended, since a restore checks for the signal once the container is up.
        ask_to_end(state_dir, &context.root, id).map_err(DeleteError::InTheWay)?;
        end_container(context, id);
        sleep(POLL);
    }
}

/// Ends the container, since a driver call or a dump ends with its processes. A container that is
/// still being restored is left to the restore, which rolls back.
fn end_container(context: &Context, id: &str) {
    let is_there = context.container(id).is_ok_and(|found| found.is_some());
    if is_there && !low_level::is_restoring(&context.root, id) {
        let limit = context.settings.deadlines.stalled();
        low_level::delete(&context.low_level, &context.root, id, limit);
    }
}
