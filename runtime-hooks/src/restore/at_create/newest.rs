//! Checks whether the registry has a newer image of a key than this machine: if jobs move between
//! hosts, the previous container may have ended elsewhere.
//!
//! A stop of a container first announces its image in the registry (`checkpoint::at_stop::push`).
//! As long as that is valid, no earlier image is taken: the job would go back in time.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_config::Settings;
use stasis_oci_image::document::annotations::{CREATED, IMAGE};
use stasis_oci_image::{
    Announcement, Digest, Elsewhere, OciImageError, Reference, Registry, Tagged,
};
use stasis_oci_image::{Manifest, RepositoryName};

use crate::container::at_stop::repository::repository_of;
use crate::container::spec::Spec;
use crate::error::first_image::NoFirstImage;
use crate::error::kind::Kind;
use crate::host::cancel::Cancel;
use crate::host::time::now;
use crate::image::stopped::{ENDING, LATEST};

/// The time limit for a registry's answers.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// The newest image on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Here<'i> {
    /// The image's name, which has the time when a container was stopped.
    pub(crate) name: &'i str,
    /// The creation time, RFC 3339.
    pub(crate) created: &'i str,
}

impl Here<'_> {
    /// Images of stopped containers are named by the time to the millisecond; other images have a
    /// creation time in seconds.
    pub(crate) fn is_before(&self, there: &Manifest) -> bool {
        match there.annotation(IMAGE) {
            Some(name) if [name, self.name].iter().all(|name| name.ends_with(ENDING)) => {
                name > self.name
            }
            _ => there.annotation(CREATED) > Some(self.created),
        }
    }
}

/// An image of the registry.
#[derive(Debug)]
pub(super) struct There {
    pub(super) reference: Reference,
    /// Its name on the host where it was made.
    pub(super) name: String,
}

/// Returns the registry's image, if it is newer than the local one. Waits up to
/// `deadlines.stalled_s` for an image that is being made.
pub(super) fn newer(
    settings: &Settings,
    cancel: &Cancel,
    spec: &Spec,
    key: &Path,
    here: Option<Here<'_>>,
) -> Result<Option<There>, NoFirstImage> {
    let all = &settings.restore.registry;
    if all.is_empty() {
        return Ok(None);
    }
    let repository = repository_of(all, spec, key)?;
    let deadline = Instant::now() + settings.deadlines.stalled();
    loop {
        let awaited = match look(&repository, here).map_err(unknown(&repository))? {
            Looked::Newest(newest) => return Ok(newest),
            Looked::Awaited(awaited) => awaited,
        };
        if Instant::now() > deadline || cancel.requested() {
            return Err(NoFirstImage::Awaited {
                image: awaited.image,
                host: awaited.host,
                since: awaited.since,
            });
        }
        sleep(POLL);
    }
}

enum Looked {
    /// `None` if the registry has no newer image.
    Newest(Option<There>),
    /// The newest image is not complete yet.
    Awaited(Announcement),
}

fn look(repository: &RepositoryName, here: Option<Here<'_>>) -> Result<Looked, OciImageError> {
    let registry = Registry::open(repository.clone(), None)?;
    let registry = registry.until(Instant::now() + ANSWERED_WITHIN);
    let newest = |image: &Manifest, digest: &Digest| {
        let is_newer = here.is_none_or(|here| here.is_before(image));
        let there = is_newer.then(|| {
            Ok(There {
                reference: format!("{repository}@{digest}").parse()?,
                name: image.annotation(IMAGE).unwrap_or_default().to_owned(),
            })
        });
        there.transpose().map(Looked::Newest)
    };
    match registry.tagged(LATEST)? {
        Tagged::Nothing => Ok(Looked::Newest(None)),
        Tagged::Image(image, digest) => newest(&image, &digest),
        // The image was made here, and is complete: it is being pushed.
        Tagged::Awaited(awaited) if here.is_some_and(|here| here.name == awaited.image) => {
            Ok(Looked::Newest(None))
        }
        Tagged::Awaited(awaited) if awaited.until >= now() => Ok(Looked::Awaited(awaited)),
        // The process that announced it is gone, or has withdrawn it.
        Tagged::Awaited(lost) => match lost.before {
            Some(digest) => newest(&registry.manifest(&digest.to_string())?.0, &digest),
            None => Ok(Looked::Newest(None)),
        },
    }
}

fn unknown(repository: &RepositoryName) -> impl FnOnce(OciImageError) -> NoFirstImage {
    let reference = format!("{repository}:{LATEST}");
    move |error| NoFirstImage::Pull {
        reference,
        kind: Kind::Registry,
        why: error.to_string(),
    }
}
