//! Whether the registry has a newer image of a key than this machine: where jobs move from host to
//! host, the one before may have ended elsewhere.
//!
//! Whoever stops a container says so in the registry first (`checkpoint::at_stop::push`). As long
//! as that holds, no earlier image is taken: the job would go back in time.

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

/// A registry that does not answer in this time is not there.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// The newest image that is here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Here<'i> {
    /// The image's name, which says when a container was stopped.
    pub(crate) name: &'i str,
    /// When it was made, RFC 3339.
    pub(crate) created: &'i str,
}

impl Here<'_> {
    /// Images of stopped containers are named by the time to the millisecond; others say in which
    /// second they were made.
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
    /// The name that it has on the host where it was made.
    pub(super) name: String,
}

/// The image of the registry, if it is newer than the one that is here. Waits up to
/// `deadlines.stalled_s` for one that is being made.
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
    /// None, if nothing there is newer.
    Newest(Option<There>),
    /// It is not known yet.
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
        // It was made here, and is complete: it is being pushed.
        Tagged::Awaited(awaited) if here.is_some_and(|here| here.name == awaited.image) => {
            Ok(Looked::Newest(None))
        }
        Tagged::Awaited(awaited) if awaited.until >= now() => Ok(Looked::Awaited(awaited)),
        // Whoever made it is gone, or has taken it back.
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
