//! OCI delete: forgets what an operation recorded of a container that is gone.

use std::ffi::OsString;
use std::io;

use crate::engine::{Engine, Outcome};
use crate::exit_status;
use crate::low_level;
use crate::operation::{Operation, has_record};

/// Deletes a container. One of which nothing is recorded is not ours.
///
/// # Errors
/// The low-level runtime cannot be started.
pub fn delete(engine: &Engine, id: &str, args: &[OsString]) -> io::Result<Outcome> {
    let state_dir = &engine.settings.paths.state_dir;
    if !has_record(state_dir, &engine.root, id) {
        return Ok(Outcome::PassThrough);
    }
    let status = low_level::run_inherited(&engine.low_level, args)?;
    // An operation that is still under way finds its container gone and forgets it itself.
    if status.success()
        && let Ok(operation) = Operation::begin(state_dir, &engine.root, id)
    {
        operation.forget();
    }
    Ok(Outcome::Done(exit_status::code(status)))
}
