//! The restore of one container of several that share one outcome.
//!
//! Up to a container that runs it is as any other, but it waits for the others ([`Step`]): with its
//! room reserved, with files that are what they were, frozen behind CRIU, and frozen again with its
//! GPUs. Then the parent decides, and all go on; before that all of it is ended if one of them
//! fails.

use crate::companions::{Companions, Step};
use crate::context::{Context, Outcome};
use crate::error::after_failure::AfterFailure;
use crate::error::operations_log;
use crate::error::{Error, Failure, Refusal};
use crate::image::directory::INVENTORY;
use crate::image::files::FileError;
use crate::image::manifest::Manifest;
use crate::low_level::restore::Restored;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::verb::Verb;
use crate::request::{LowLevelArgs, RestoreRequest};
use crate::restore::hold::Goal;
use crate::restore::image::{self, ImageKind};
use crate::restore::plan::Plan;
use crate::restore::undo::{exists, is_taken};

/// Restores the container, together with the others.
pub(super) fn restore(
    context: &Context,
    options: &RestoreRequest,
    companions: &dyn Companions,
    low_level_args: LowLevelArgs<'_>,
) -> Result<Outcome, Error> {
    let refused =
        |reason: Refusal| operations_log::refused(context, Verb::Restore, &options.id, reason);
    if is_taken(context, &options.id) {
        return Err(refused(exists(context, &options.id).into()));
    }
    let (options, opened) = image::opened(&context.settings, options).map_err(refused)?;
    let options = &options;
    let manifest = find(context, options).map_err(refused)?;
    let plan =
        Plan::make(context, options, manifest, Goal::Together(companions)).map_err(refused)?;
    let progress = Progress::begin(context, plan.operation(), Verb::Restore);
    let mut timeline = Timeline::with_progress(progress).of_image(&options.image_path);
    let result = carry_out(context, &plan, companions, low_level_args, &mut timeline);
    let error = result.as_ref().err();
    operations_log::write(context, Verb::Restore, &options.id, &timeline, error);
    drop(timeline);
    drop(plan);
    drop(opened);
    Ok(Outcome::Done(result?.exit_code()))
}

/// The manifest of the image; that of a container without GPU state may have none.
fn find(context: &Context, options: &RestoreRequest) -> Result<Manifest, Refusal> {
    match image::find_for(&context.settings, options)? {
        ImageKind::Image(manifest) => Ok(*manifest),
        ImageKind::Plain => Ok(Manifest::implied(&options.id)),
        ImageKind::Nothing => {
            let path = options.image_path.join(INVENTORY);
            Err(FileError::Missing { path }.into())
        }
    }
}

fn carry_out(
    context: &Context,
    plan: &Plan<'_>,
    companions: &dyn Companions,
    low_level_args: LowLevelArgs<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<Restored, Error> {
    check(context, plan, companions, timeline).map_err(|cause| {
        Error::ending(
            plan.operation(),
            Verb::Restore,
            cause,
            AfterFailure::NotStarted,
        )
    })?;
    let restored = plan.bring_up(low_level_args, timeline)?;
    plan.resume_with_others(timeline)?;
    Ok(restored)
}

/// Checks everything that can be checked before the low-level runtime is started.
fn check(
    context: &Context,
    plan: &Plan<'_>,
    companions: &dyn Companions,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    plan.meet(companions, Step::Admitted, timeline)?;
    timeline.time("verify", || {
        image::verify(&context.settings, plan.image(), plan.manifest())
    })?;
    plan.meet(companions, Step::Verified, timeline)
}
