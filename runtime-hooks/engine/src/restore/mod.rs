//! The restore of a container with GPU state, from top to bottom.
//!
//! Read the manifest, check that the GPUs have enough memory, let the low-level runtime and CRIU
//! restore the processes, then restore their GPU state. Callers read the pid and report "running"
//! only after this process has ended, so the GPU state is back before the container is announced.

pub mod admission;
mod as_specified;
pub mod created;
pub(crate) mod device_nodes;
pub(crate) mod device_numbers;
pub mod driver_libraries;
pub(crate) mod gpu_state;
mod hold;
mod hook;
pub mod host_memory;
pub mod image;
pub mod mounted;
pub(crate) mod plain;
mod plan;
pub mod start;
pub mod state;
mod together;
pub(crate) mod undo;

use crate::companions::Companions;
use crate::context::{Context, Outcome};
use crate::error::operations_log;
use crate::error::{Error, Refusal};
use crate::image::manifest::Manifest;
use crate::image::mounted::carries_files;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::verb::Verb;
use crate::request::{LowLevelArgs, RestoreRequest};
use crate::restore::hold::Goal;
use crate::restore::image::ImageKind;
use crate::restore::plain::restore_plain;
use crate::restore::plan::Plan;
use crate::restore::undo::leave_taken;
pub use crate::restore::undo::{is_taken, make_way};

/// Restores a container. The low-level runtime restores an image with neither a manifest nor memory
/// or files that CRIU has not written, and its CUDA processes are checked afterwards.
///
/// # Errors
/// [`Error`]; nothing of the container is left then, and the image is as it was.
pub fn restore(
    context: &Context,
    options: &RestoreRequest,
    companions: &dyn Companions,
    low_level_args: LowLevelArgs<'_>,
) -> Result<Outcome, Error> {
    if companions.outcome().is_some() {
        return together::restore(context, options, companions, low_level_args);
    }
    let refused =
        |reason: Refusal| operations_log::refused(context, Verb::Restore, &options.id, reason);
    // A container with this id exists: the low-level runtime refuses. We must not reach the end of
    // a failed restore, which would end the container that runs.
    if is_taken(context, &options.id) {
        return leave_taken(context, &options.id).map_err(|error| refused(error.into()));
    }
    let (options, image) = image::opened(&context.settings, options).map_err(refused)?;
    let options = &options;
    let manifest = match image::find_for(&context.settings, options).map_err(refused)? {
        ImageKind::Image(manifest) => *manifest,
        ImageKind::Plain => match carries_files(&options.image_path) {
            Ok(true) => Manifest::implied(&options.id),
            Ok(false) => return restore_plain(context, options, low_level_args, image),
            Err(error) => return Err(refused(error.into())),
        },
        // The low-level runtime reports that.
        ImageKind::Nothing => return Ok(Outcome::PassThrough),
    };
    let plan = Plan::make(context, options, manifest, Goal::Running).map_err(refused)?;
    let progress = Progress::begin(context, plan.operation(), Verb::Restore);
    let mut timeline = Timeline::with_progress(progress).of_image(&options.image_path);
    timeline
        .time("verify", || {
            image::verify(&context.settings, &options.image_path, plan.manifest())
        })
        .map_err(|error| refused(error.into()))?;
    let result = plan.bring_up(low_level_args, &mut timeline);
    operations_log::write(
        context,
        Verb::Restore,
        &options.id,
        &timeline,
        result.as_ref().err(),
    );
    // From here on other operations may lock the container, also while we wait for its end.
    drop(timeline);
    drop(plan);
    drop(image);
    Ok(Outcome::Done(result?.exit_code()))
}
