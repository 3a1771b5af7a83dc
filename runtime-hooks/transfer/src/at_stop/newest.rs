//! The process that asks a registry for the newest image of a key, for a new container
//! (`lifecycle/src/at_create/newest.rs`).

use std::time::Instant;

use stasis_host::respawn::say;
use stasis_lifecycle::at_create::newest::{ANSWERED_WITHIN, Newest, Query, RemoteImage};
use stasis_lifecycle::stopped::LATEST;
use stasis_oci_image::document::annotations::IMAGE;
use stasis_oci_image::{Announcement, Digest, Manifest, OciImageError};

use crate::at_stop::latest::{holds, repository};
use crate::places::{Elsewhere, Registry, Tagged};

/// Asks, and reports the answer. Returns whether there is one.
#[must_use]
pub(crate) fn run(query: &Query) -> bool {
    let answer = look(query).map_err(|error| error.to_string());
    say(&answer).is_ok() && answer.is_ok()
}

fn look(query: &Query) -> Result<Newest, OciImageError> {
    let registry = Registry::open(repository(query.repository.clone())?, None)?;
    let registry = registry.until(Instant::now() + ANSWERED_WITHIN);
    match registry.tagged(LATEST)? {
        Tagged::Nothing => Ok(Newest::Image(None)),
        Tagged::Image(image, digest) => Ok(newest(query, &image, &digest)),
        Tagged::Awaited(awaited) if is_here(query, &awaited) => Ok(Newest::Image(None)),
        Tagged::Awaited(made) if holds(&made) => Ok(Newest::Awaited {
            image: made.image,
            host: made.host,
            since: made.since,
        }),
        // The host that made it is gone, or has withdrawn it.
        Tagged::Awaited(lost) => match lost.before {
            Some(digest) => {
                let (image, digest) = registry.manifest(&digest.to_string())?;
                Ok(newest(query, &image, &digest))
            }
            None => Ok(Newest::Image(None)),
        },
    }
}

/// Whether the announced image was made on this machine and is complete: it is being pushed.
fn is_here(query: &Query, awaited: &Announcement) -> bool {
    let here = query.here.as_ref();
    here.is_some_and(|here| here.name == awaited.image)
}

fn newest(query: &Query, image: &Manifest, digest: &Digest) -> Newest {
    let is_newer = query.here.as_ref().is_none_or(|here| here.is_before(image));
    Newest::Image(is_newer.then(|| RemoteImage {
        reference: format!("{}@{digest}", query.repository),
        name: image.annotation(IMAGE).unwrap_or_default().to_owned(),
    }))
}
