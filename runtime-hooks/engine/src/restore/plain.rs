//! The restore of an image without a manifest.
//!
//! The low-level runtime restores it as it would without stasis, with CRIU's defaults. But the
//! image may still hold GPU state, if its `stasis.json` was lost or not copied. Its CUDA processes
//! would block for ever at their next call. So the driver is queried about the processes that may
//! use CUDA before the restore counts as a success.

use std::os::unix::process::ExitStatusExt;

use crate::container::ContainerError;
use crate::context::{Context, Outcome};
use crate::error::after_failure::AfterFailure;
use crate::error::low_level::LowLevelFailure;
use crate::error::operations_log;
use crate::error::{Error, Failure};
use crate::image::directory::Opened;
use crate::low_level::restore::{LowLevelRestore, Restored};
use crate::operation::timeline::Timeline;
use crate::operation::undo::{Begun, Undo};
use crate::operation::verb::Verb;
use crate::recovery;
use crate::recovery::end::end;
use crate::request::{LowLevelArgs, RestoreMode, RestoreRequest};
use crate::restore::gpu_state::verify;
use crate::restore::undo::{started, to_undo};

/// Restores the container, and passes the low-level runtime's output and exit code on.
///
/// # Errors
/// The low-level runtime cannot be started, or was killed, or a process was restored without its
/// GPU: nothing is left of the container then.
pub(crate) fn restore_plain(
    context: &Context,
    options: &RestoreRequest,
    low_level_args: LowLevelArgs<'_>,
    image: Opened,
) -> Result<Outcome, Error> {
    let (operation, undo) = recovery::begin(context, &options.id)
        .and_then(|operation| {
            let undo = started(
                context,
                &options.id,
                &to_undo(options, &operation, None, None),
            );
            let begun = Begun::Restore(undo.clone());
            operation.keep(Undo::new(context, &options.id, begun))?;
            Ok((operation, undo))
        })
        .map_err(|error| operations_log::refused(context, Verb::Restore, &options.id, error))?;
    let low_level = LowLevelRestore::new(context, options, low_level_args, &operation);
    let restored = match context.cancel.requested() {
        // From here on a signal is the container's, as without stasis. This one was for stasis, and
        // is not forwarded.
        true => Err((Failure::Cancelled, AfterFailure::NotStarted)),
        false => bring_up(context, options, &low_level)
            .map_err(|cause| (cause, end(context, &options.id, &undo))),
    };
    let restored = restored.map_err(|(cause, after_failure)| {
        let error = Error::ending(&operation, Verb::Restore, cause, after_failure);
        let timeline = Timeline::default();
        operations_log::write(context, Verb::Restore, &options.id, &timeline, Some(&error));
        error
    })?;
    if restored.is_up_or_was() {
        tell(context, options, &low_level.notes());
    }
    // Other operations may lock the container while we wait for its end.
    drop(operation);
    drop(image);
    Ok(Outcome::Done(restored.exit_code()))
}

/// A restore that differs from what the low-level runtime alone would have done is logged.
fn tell(context: &Context, options: &RestoreRequest, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    let mut timeline = Timeline::default().of_image(&options.image_path);
    notes.iter().for_each(|note| timeline.note(note));
    operations_log::write(context, Verb::Restore, &options.id, &timeline, None);
}

fn bring_up(
    context: &Context,
    options: &RestoreRequest,
    low_level: &LowLevelRestore<'_>,
) -> Result<Restored, Failure> {
    let restored = low_level
        .run(None)
        .map_err(Failure::start(&context.low_level))?;
    // The CRIU of a low-level runtime that was killed may have brought up tasks that no record
    // tells of.
    if let Restored::Over(ended) = &restored
        && (ended.hung.is_some() || ended.status.signal().is_some())
    {
        let failed = LowLevelFailure::of_restore(context, options, low_level.log(), ended);
        return Err(Failure::LowLevel(Box::new(failed)));
    }
    if let Restored::Over(ended) = &restored
        && (!ended.status.success() || options.mode == RestoreMode::Attached)
    {
        return Ok(restored);
    }
    // A signal that asks for the end is the container's now, as without us: its caller waits.
    match context.container(&options.id) {
        Ok(Some(container)) => verify(context, &container)?,
        // The container has ended, or has no cgroup, and then no GPU checkpoint either.
        Ok(None) | Err(ContainerError::Malformed { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(restored)
}
