//! The record by which a keeper undoes a killed restore.

use std::io;
use std::path::PathBuf;

use crate::container::restored_cgroup;
use crate::container::root_mounts::RootMounts;
use crate::context::{Context, Outcome};
use crate::error::Error;
use crate::low_level::restore::pid_file;
use crate::operation::outcome::SharedOutcome;
use crate::operation::undo::{Restore, Stage};
use crate::operation::verb::Verb;
use crate::operation::{Operation, OperationError, has_directory};
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
/// later it would be taken for something of the new container.
///
/// # Errors
/// An operation on the id is under way, or what it has left cannot be undone yet.
pub fn make_way(context: &Context, id: &str) -> Result<(), Error> {
    if !has_directory(&context.settings.paths.state_dir, &context.root, id) {
        return Ok(());
    }
    let refused = |error: OperationError| Error::refused(Verb::Create, id, error);
    let operation = recovery::begin(context, id).map_err(refused)?;
    // The low-level runtime refuses an id that is taken.
    if !is_taken(context, id) {
        operation.clear();
    }
    Ok(())
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
