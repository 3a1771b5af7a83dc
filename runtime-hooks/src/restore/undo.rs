//! What a keeper undoes if a restore is killed.

use std::path::PathBuf;

use crate::context::Context;
use crate::low_level::restore::pid_file;
use crate::operation::Operation;
use crate::operation::undo::{Begun, Restore, Undo};
use crate::request::{RestoreMode, RestoreRequest};

/// What a keeper has to know of a restore.
pub(crate) fn to_undo(
    context: &Context,
    options: &RestoreRequest,
    operation: &Operation,
    specification: Option<(PathBuf, String)>,
) -> Undo {
    let pid_file = match options.mode {
        RestoreMode::Attached => Some(pid_file(options, operation)),
        RestoreMode::Detached => None,
    };
    let begun = Begun::Restore(Restore {
        work: options.work().to_owned(),
        pid_file,
        specification,
    });
    Undo::new(context, &options.id, begun)
}
