//! A restore in the place of `create`: the processes of an image wait for the container's start.

use crate::container::criu_configuration;
use crate::context::Context;
use crate::error::operations_log;
use crate::error::{Error, Refusal};
use crate::image::manifest::Manifest;
use crate::image::work_directory;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::verb::Verb;
use crate::request::{LowLevelArgs, RestoreRequest};
use crate::restore::hold::Goal;
use crate::restore::image;
use crate::restore::plan::Plan;

/// Restores a container whose processes wait for [`start`](super::start::start). The caller keeps
/// the image open; `notes` go into the log of a success.
///
/// # Errors
/// [`Error`]: nothing of the container is left, unless it reports otherwise. A caller that creates
/// the container in another way writes its own line to the log.
pub fn restore_created(
    context: &Context,
    request: &RestoreRequest,
    manifest: Manifest,
    notes: impl Iterator<Item = String>,
    low_level_args: LowLevelArgs<'_>,
) -> Result<(), Error> {
    let (id, image) = (&request.id, &request.image_path);
    let refused = |reason: Refusal| Error::refused(Verb::Create, id, reason);
    check(context, request).map_err(refused)?;
    let plan = Plan::make(context, request, manifest, Goal::Created).map_err(refused)?;
    let progress = Progress::begin(context, plan.operation(), Verb::Create);
    let mut timeline = Timeline::with_progress(progress).of_image(image);
    for note in notes {
        timeline.note(note);
    }
    timeline
        .time("verify", || {
            image::verify(&context.settings, image, plan.manifest())
        })
        .map_err(|error| refused(error.into()))?;
    plan.bring_up(low_level_args, &mut timeline)?;
    operations_log::write(context, Verb::Create, id, &timeline, None);
    Ok(())
}

fn check(context: &Context, request: &RestoreRequest) -> Result<(), Refusal> {
    criu_configuration::refuse_new(&context.settings, &request.bundle)?;
    work_directory::check_for_restore(request.work())?;
    image::let_in(request)
}
