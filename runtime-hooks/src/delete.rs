//! OCI delete: forgets what an operation recorded of a container that is gone, and by force ends
//! the operation, too.

use std::ffi::OsString;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::engine::{Engine, Outcome};
use crate::exit_status;
use crate::invocation::DeleteMode;
use crate::lock_holder::ask_to_end;
use crate::low_level;
use crate::operation::{Operation, OperationError, has_record};

/// How long an operation may take to roll back. containerd gives a dead shim's `delete` 5 s for
/// everything (runtime/v2 `cleanupTimeout`); an operation that takes longer ends by itself.
const ROLL_BACK: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// Deletes a container. One of which nothing is recorded is not ours.
///
/// # Errors
/// The low-level runtime cannot be started or must not be; an operation that was asked to end is
/// still under way.
pub fn delete(
    engine: &Engine,
    id: &str,
    mode: DeleteMode,
    args: &[OsString],
) -> io::Result<Outcome> {
    let state_dir = &engine.settings.paths.state_dir;
    if !has_record(state_dir, &engine.root, id) {
        low_level::detach_restore_mount(&engine.root, id)?;
        return Ok(Outcome::PassThrough);
    }
    let operation = match mode {
        // One that is still under way finds its container gone and forgets it itself.
        DeleteMode::Stopped => Operation::begin(state_dir, &engine.root, id).ok(),
        DeleteMode::Force => Some(end_operation(engine, id)?),
    };
    if operation.is_some() {
        low_level::detach_restore_mount(&engine.root, id)?;
    }
    let status = low_level::run_inherited(&engine.low_level, args)?;
    if let Some(operation) = operation.filter(|_| status.success()) {
        operation.forget();
    }
    Ok(Outcome::Done(exit_status::code(status)))
}

/// Ends the operation that is under way, if any, and takes its place.
fn end_operation(engine: &Engine, id: &str) -> io::Result<Operation> {
    let state_dir = &engine.settings.paths.state_dir;
    let deadline = Instant::now() + ROLL_BACK;
    loop {
        let busy = match Operation::begin(state_dir, &engine.root, id) {
            Err(busy @ OperationError::Busy { .. }) => busy,
            other => return other.map_err(io::Error::other),
        };
        if Instant::now() > deadline {
            return Err(io::Error::other(busy));
        }
        // Again and again: its process may not have been known yet. And before the container is
        // ended: a restore looks for the signal once the container is up.
        ask_to_end(state_dir, &engine.root, id)?;
        end_container(engine, id);
        sleep(POLL);
    }
}

/// A driver call or a dump ends with the processes that it is about. What the low-level runtime is
/// still restoring is left to the restore itself, which rolls back.
fn end_container(engine: &Engine, id: &str) {
    let is_there = engine.container(id).is_ok_and(|found| found.is_some());
    if is_there && !low_level::is_restoring(&engine.root, id) {
        low_level::delete(&engine.low_level, &engine.root, id);
    }
}
