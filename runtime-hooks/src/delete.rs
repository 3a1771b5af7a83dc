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
/// The low-level runtime cannot be started.
pub fn delete(
    engine: &Engine,
    id: &str,
    mode: DeleteMode,
    args: &[OsString],
) -> io::Result<Outcome> {
    let state_dir = &engine.settings.paths.state_dir;
    if !has_record(state_dir, &engine.root, id) {
        return Ok(Outcome::PassThrough);
    }
    if mode == DeleteMode::Force {
        // Before the container is ended: a restore looks for this signal after the low-level
        // runtime's part, so that it either sees it or had brought up what is ended below.
        let _ = ask_to_end(state_dir, &engine.root, id);
    }
    let status = low_level::run_inherited(&engine.low_level, args)?;
    if status.success() {
        match mode {
            // An operation that is still under way finds its container gone and forgets it itself.
            DeleteMode::Stopped => drop(forget(engine, id, mode)),
            DeleteMode::Force => end_operation(engine, id),
        }
    }
    Ok(Outcome::Done(exit_status::code(status)))
}

/// Waits until no operation is under way, and leaves nothing of a container that one brought up
/// meanwhile.
fn end_operation(engine: &Engine, id: &str) {
    let deadline = Instant::now() + ROLL_BACK;
    while let Err(OperationError::Busy { .. }) = forget(engine, id, DeleteMode::Force)
        && Instant::now() < deadline
    {
        // Again and again: the one that was asked may not have been known yet, and another may
        // have begun.
        let _ = ask_to_end(&engine.settings.paths.state_dir, &engine.root, id);
        end_container(engine, id);
        sleep(POLL);
    }
}

fn forget(engine: &Engine, id: &str, mode: DeleteMode) -> Result<(), OperationError> {
    let operation = Operation::begin(&engine.settings.paths.state_dir, &engine.root, id)?;
    if mode == DeleteMode::Force {
        end_container(engine, id);
    }
    operation.forget();
    Ok(())
}

fn end_container(engine: &Engine, id: &str) {
    if engine.root.join(id).exists() {
        low_level::delete(&engine.low_level, &engine.root, id);
    }
}
