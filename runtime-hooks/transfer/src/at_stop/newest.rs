//! The process that asks a registry for the newest image of a key, for a new container
//! (`lifecycle/src/at_create/newest.rs`).

use std::time::Instant;

use stasis_engine::error::chain;
use stasis_host::respawn::{NotBegun, say};
use stasis_lifecycle::at_create::newest::{ANSWERED_WITHIN, Newest, Query, RemoteImage};
use stasis_lifecycle::stopped::LATEST;
use stasis_oci_image::OciImageError;
use stasis_oci_image::document::annotations::IMAGE;

use crate::at_stop::latest::{behind, holds, repository};
use crate::places::{Registry, Tagged};

/// Asks, and reports the answer. Returns whether there is one.
#[must_use]
pub(crate) fn run(query: Result<Query, NotBegun>) -> bool {
    let query = query.map_err(|error| chain(&error));
    let answer = query.and_then(|query| look(&query).map_err(|error| error.to_string()));
    say(&answer).is_ok() && answer.is_ok()
}

fn look(query: &Query) -> Result<Newest, OciImageError> {
    let registry = Registry::open(repository(query.repository.clone())?, None)?;
    let registry = registry.until(Instant::now() + ANSWERED_WITHIN);
    let tagged = registry.tagged(LATEST)?;
    let here = query.here.as_ref();
    match &tagged {
        // It was made on this machine and is complete: it is being pushed.
        Tagged::Awaited(made) if here.is_some_and(|here| here.name == made.image) => {
            return Ok(Newest::Image(None));
        }
        Tagged::Awaited(made) if holds(made) => {
            return Ok(Newest::Awaited {
                image: made.image.clone(),
                host: made.host.clone(),
                since: made.since.clone(),
            });
        }
        // The host that made it is gone, or has withdrawn it.
        Tagged::Awaited(_) | Tagged::Image(..) | Tagged::Nothing => {}
    }
    let newer = behind(&registry, &tagged)?
        .filter(|(image, _)| here.is_none_or(|here| here.is_before(image)));
    Ok(Newest::Image(newer.map(|(image, digest)| RemoteImage {
        reference: format!("{}@{digest}", query.repository),
        name: image.annotation(IMAGE).unwrap_or_default().to_owned(),
    })))
}
