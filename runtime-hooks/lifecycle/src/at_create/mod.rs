//! Containers that begin with an image: `create` restores it and holds the processes, and `start`
//! gives them their GPUs and resumes them.
//!
//! If anything prevents that, the container is started cold, as if it had asked for nothing, and
//! the log has the reason: a job that is late is better than one that does not start.

pub mod ended_soon;
mod find;
pub mod first_image;
pub mod newest;
mod no_first_image;
mod passed_over;
pub mod pull_process;
pub mod pulled;
pub mod start;

use std::ffi::{OsStr, OsString};

use crate::at_create::first_image::FirstImage;
use crate::at_create::no_first_image::NoFirstImage;
use crate::stopped::key;
use stasis_engine::context::Context;
use stasis_engine::error::after_failure::AfterFailure;
use stasis_engine::error::kind::Kind;
use stasis_engine::error::operations_log;
use stasis_engine::error::{Error, Failure, Refusal, chain};
use stasis_engine::operation::timeline::Timeline;
use stasis_engine::operation::verb::Verb;
use stasis_engine::request::{RestoreMode, RestoreRequest};
use stasis_engine::restore::created::restore_created;
use stasis_engine::restore::is_taken;

use crate::at_create::find::{FoundImage, find, leave};
use crate::at_create::passed_over::PassedOver;
use crate::request::{CreateRequest, CreateVerb};

/// The command line of a restore of this image in the place of a create, with these options.
pub(crate) type RestoreArgs<'a> = &'a dyn Fn(&RestoreRequest, &[(&str, &OsStr)]) -> Vec<OsString>;

/// The result of a create.
#[derive(Debug)]
pub enum Created {
    /// The container waits for its start, with the processes of the image.
    FromImage,
    /// The low-level runtime has to create it, for this reason; without a reason if the runtime
    /// reports it better.
    Cold(Option<String>),
}

/// Creates a container from an image, if that is possible.
///
/// [`Error`]: a signal asked for the end, or the restore has left remains that a cold start would
/// collide with.
pub fn create(
    context: &Context,
    options: &CreateRequest,
    asked: &FirstImage,
    restore_args: RestoreArgs<'_>,
) -> Result<Created, Error> {
    let id = &options.id;
    if is_taken(context, id) {
        return Ok(Created::Cold(None));
    }
    let mut timeline = Timeline::default();
    let Err(error) = from_image(context, options, asked, restore_args) else {
        return Ok(Created::FromImage);
    };
    // If another create has made it meanwhile, the low-level runtime reports that as well.
    if matches!(error, Error::Refused { .. }) && is_taken(context, id) {
        return Ok(Created::Cold(None));
    }
    if !leaves_nothing(&error) {
        operations_log::write(context, Verb::Create, id, &timeline, Some(&error));
        return Err(error);
    }
    let why = format!("started cold: {}", chain(&error));
    timeline.note(&why);
    // A container that is created in such a way never begins with an image.
    let could_begin = error.diagnosis().kind != Kind::Unsupported;
    let left = could_begin.then(|| leave(&context.settings, &options.bundle, asked));
    if let Some(Err(error)) = left {
        let note = "the images of its key may be removed by later stops, as those of one life";
        timeline.note(format!("{note}: {}", chain(&error)));
    }
    operations_log::write(context, Verb::Create, id, &timeline, None);
    Ok(Created::Cold(Some(why)))
}

/// Returns whether a container of the same id can be created now, and is wanted.
fn leaves_nothing(error: &Error) -> bool {
    match error {
        Error::Refused { .. } => true,
        Error::Failed {
            cause,
            after_failure,
            ..
        } => {
            let nothing = matches!(
                **after_failure,
                AfterFailure::NotStarted | AfterFailure::Killed
            );
            nothing && !matches!(**cause, Failure::Cancelled)
        }
    }
}

/// Begins with the image, or with the latest whole image of a key.
fn from_image(
    context: &Context,
    options: &CreateRequest,
    asked: &FirstImage,
    restore_args: RestoreArgs<'_>,
) -> Result<(), Error> {
    let refused = |reason: Refusal| Error::refused(Verb::Create, &options.id, reason);
    let mut passed_over = PassedOver::default();
    loop {
        let (request, found) = match request(context, options, asked, &mut passed_over) {
            Ok(found) => found,
            Err(none) => return Err(refused(passed_over.why_none(none))),
        };
        match from(context, &request, found, &passed_over, restore_args) {
            Err(Error::Refused { reason, .. }) if matches!(asked, FirstImage::Latest(_)) => {
                let added = passed_over.add(&request.image_path, *reason);
                added.map_err(refused)?;
            }
            over => return over,
        }
    }
}

/// Begins with this image.
fn from(
    context: &Context,
    request: &RestoreRequest,
    found: FoundImage,
    passed_over: &PassedOver,
    restore_args: RestoreArgs<'_>,
) -> Result<(), Error> {
    let args = |extra: &[(&str, &OsStr)]| restore_args(request, extra);
    let notes = passed_over.notes(&request.image_path);
    restore_created(context, request, found.manifest, notes, &args)?;
    // If this fails, more images stay than are needed.
    let _ = key::mark_continued(&request.image_path);
    Ok(())
}

fn request(
    context: &Context,
    options: &CreateRequest,
    asked: &FirstImage,
    passed_over: &mut PassedOver,
) -> Result<(RestoreRequest, FoundImage), Refusal> {
    let bundle = &options.bundle;
    let found = find(
        &context.settings,
        &context.cancel,
        bundle,
        &options.id,
        asked,
        passed_over,
    )?;
    if options.verb == CreateVerb::Run {
        return Err(NoFirstImage::Run.into());
    }
    if let Some(option) = options.without_restore {
        return Err(NoFirstImage::Option(option).into());
    }
    let request = RestoreRequest {
        id: options.id.clone(),
        bundle: bundle.clone(),
        image_path: found.image.clone(),
        // Many restores share the image's own directory, which may be read-only.
        work_path: Some(bundle.clone()),
        pid_file: options.pid_file.clone(),
        mode: RestoreMode::Detached,
    };
    Ok((request, found))
}
