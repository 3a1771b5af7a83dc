//! The rest of an image that a `create` has had pulled, where nobody pulls it any more at the
//! `start`: who did was killed, or has given up.

use std::path::Path;

use stasis_memory_store::{Arrived, Arriving};
use stasis_oci_image::{Digest, OciImageError, Reference};

use crate::context::Context;
use crate::error::Refusal;
use crate::error::first_image::NoFirstImage;
use crate::error::kind::Kind;
use crate::restore::at_create::pull_process::{Into, NotPulled, Process, Pull};
use crate::restore::at_create::pulled::place_of;

/// Has a process pull the rest, if nobody does. What somebody has pulled into a directory of his
/// own is his to pull.
///
/// # Errors
/// [`Refusal`]: it cannot be pulled now.
pub(super) fn pull_on(context: &Context, image: &Path) -> Result<(), Refusal> {
    let Some(arriving) = Arriving::find(image)? else {
        return Ok(());
    };
    let fetched = arriving.fetched()?;
    let (Ok(digest), Some(below)) = (fetched.digest.parse::<Digest>(), image.parent()) else {
        return Ok(());
    };
    let is_cut_off = matches!(arriving.arrived()?, Arrived::CutOff(_));
    if !is_cut_off || place_of(below, &digest.hex()) != image {
        return Ok(());
    }
    let failed = |kind, why| NoFirstImage::Pull {
        reference: fetched.reference.clone(),
        kind,
        why,
    };
    let named: Result<Reference, OciImageError> = fetched.reference.parse();
    let named = named.map_err(|error| failed(Kind::ImageDamaged, error.to_string()))?;
    let settings = &context.settings;
    let pull = Pull {
        // The tag may have gone on to another image.
        reference: named.by_digest(&digest).to_string(),
        authfile: None,
        into: Into::Kept {
            below: below.to_owned(),
            keep: settings.restore.keep_pulled,
            state_dir: settings.paths.state_dir.clone(),
        },
        threads: settings.gpu_contents.threads_on_disk(),
        stalled: settings.deadlines.stalled(),
    };
    let started = Process::start(&pull);
    let mut process = started.map_err(|error| failed(Kind::Io, error.to_string()))?;
    let there = process.image(pull.stalled, &context.cancel, &|_| Ok(()));
    there.map_err(|NotPulled { kind, why }| failed(kind, why))?;
    Ok(())
}
