//! The record by which a keeper undoes a killed restore.

use std::io;
use std::path::PathBuf;

use crate::container::restored_cgroup;
use crate::container::root_mounts::RootMounts;
use crate::context::{Context, Outcome};
use crate::low_level::restore::pid_file;
use crate::operation::outcome::SharedOutcome;
use crate::operation::undo::{Restore, Stage};
use crate::operation::{Operation, OperationError};
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
    taken(
        context,
        id,
        "there is a container of this id, which has to be deleted first",
    )
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
    OperationError::Io {
        path: context.root.join(id),
        source: io::Error::new(io::ErrorKind::AlreadyExists, what),
    }
}
