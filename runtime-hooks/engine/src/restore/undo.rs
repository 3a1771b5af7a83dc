//! The record by which a keeper undoes a killed restore.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::container::restored_cgroup;
use crate::container::root_mounts::RootMounts;
use crate::context::{Context, Outcome};
use crate::error::Error;
use crate::low_level::restore::pid_file;
use crate::operation::outcome::SharedOutcome;
use crate::operation::undo::{Begun, Restore, Stage, Undo};
use crate::operation::verb::Verb;
use crate::operation::{Operation, OperationError, directory_of, has_directory};
use crate::recovery;
use crate::request::{RestoreMode, RestoreRequest};

/// Returns the record of a restore that has started nothing yet.
pub(crate) fn to_undo(
    options: &RestoreRequest,
    operation: &Operation,
    specification: Option<(PathBuf, String)>,
    shared: Option<SharedOutcome>,
) -> Restore {
    let pid_file = match options.mode {
        RestoreMode::Attached => Some(pid_file(options, operation)),
        RestoreMode::Detached => None,
    };
    Restore {
        work: options.work().to_owned(),
        bundle: options.bundle.clone(),
        pid_file,
        specification,
        cgroup: None,
        mounts: None,
        stage: Stage::Prepared,
        shared,
    }
}

/// Returns the record for the start of the low-level runtime.
pub(crate) fn started(context: &Context, id: &str, undo: &Restore) -> Restore {
    let flavor = context.low_level.flavor;
    let cgroup = restored_cgroup::vacant(flavor, &undo.bundle, id);
    undo.started(cgroup, RootMounts::now(&undo.bundle))
}

/// Returns whether the low-level runtime has a directory for a container of this id.
pub fn is_taken(context: &Context, id: &str) -> bool {
    context.root.join(id).exists()
}

/// Undoes what an operation has left under the id of a container that is about to be created:
/// later it would be taken for something of the new container. Waits up to `wait` for a checkpoint
/// that has ended a container of this id: its callers see that end before the image is on disk.
///
/// # Errors
/// Another operation on the id is under way, or what it has left cannot be undone yet.
pub fn make_way(context: &Context, id: &str, wait: Duration) -> Result<(), Error> {
    if !has_directory(&context.settings.paths.state_dir, &context.root, id) {
        return Ok(());
    }
    let was_taken = is_taken(context, id);
    match recovery::begin_within(wait, context, id) {
        // The low-level runtime refuses an id that is taken.
        Ok(operation) if !is_taken(context, id) => operation.clear(),
        Ok(_) => {}
        // Its record names the first process of the container that has ended.
        Err(OperationError::Busy { .. }) if !was_taken && is_dumped(context, id) => {}
        Err(error) => return Err(Error::refused(Verb::Create, id, error)),
    }
    Ok(())
}

/// Whether the operation on a container is a checkpoint.
fn is_dumped(context: &Context, id: &str) -> bool {
    let directory = directory_of(&context.settings.paths.state_dir, &context.root, id);
    let is_checkpoint = |undo: Undo| matches!(undo.begun, Begun::Checkpoint { .. });
    Undo::read(&directory).is_ok_and(|undo| undo.is_some_and(is_checkpoint))
        && !context.cancel.requested()
}

/// Passes a restore to a taken id on to the low-level runtime, which refuses it. Not if the
/// settings name the images that may be restored: if the container is gone by then, the runtime
/// would restore an image that was not checked.
pub(crate) fn leave_taken(context: &Context, id: &str) -> Result<Outcome, OperationError> {
    if context.settings.restore.images.is_empty() {
        return Ok(Outcome::PassThrough);
    }
    Err(exists(context, id))
}

/// Returns the error that there is a container of this id.
pub(crate) fn exists(context: &Context, id: &str) -> OperationError {
    let what = "there is a container of this id, which has to be deleted first";
    taken(context, id, what)
}

/// Refuses an id that another caller has taken since: admission may have waited for room, and all
/// of the image has been read. A restore that fails must not end that container.
///
/// # Errors
/// [`OperationError::Io`]: the id is taken.
pub(crate) fn refuse_taken(context: &Context, id: &str) -> Result<(), OperationError> {
    if !is_taken(context, id) {
        return Ok(());
    }
    let what = "somebody has made a container of the same id meanwhile";
    Err(taken(context, id, what))
}

fn taken(context: &Context, id: &str, what: &str) -> OperationError {
    let error = io::Error::new(io::ErrorKind::AlreadyExists, what);
    OperationError::of_file(&context.root.join(id))(error)
}
