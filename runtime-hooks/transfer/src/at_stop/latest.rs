//! The tag of the newest image of a key: it announces that an image is being made, and names the
//! image then; and which of two images of a key is the later one.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::utsname::uname;
use stasis_engine::image::manifest;
use stasis_host::time::{now, rfc3339};
use stasis_lifecycle::at_create::newest::LocalImage;
use stasis_lifecycle::at_stop::push::{ANNOUNCED_WITHIN, Push};
use stasis_lifecycle::stopped::to_push::{ToPush, noted};
use stasis_lifecycle::stopped::{LATEST, is_complete};
use stasis_oci_image::document::annotations::{CREATED, IMAGE};
use stasis_oci_image::{Announcement, Digest, Manifest, OciImageError, RepositoryName};

use crate::places::{Elsewhere, Registry, Tagged};

/// Renewals while an announcement holds, so that a lost one does no harm.
const RENEWALS: u32 = 4;

/// The tag while an image is being made.
#[derive(Debug)]
pub(super) struct Latest {
    repository: RepositoryName,
    directory: PathBuf,
    image: String,
    began: SystemTime,
    /// How long an announcement holds.
    holds: Duration,
    /// Whether the image has the tag, and is announced no more. One thread at a time changes the
    /// tag.
    is_done: Mutex<bool>,
}

/// How the registry's latest image compares to this one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is none, or it is of an earlier stop.
    Earlier,
    /// This image.
    This,
    /// An image of a later stop, with this name.
    Later(String),
}

impl Latest {
    /// Names the tag of an image's key.
    pub(super) fn of(push: &Push) -> Result<Self, OciImageError> {
        Ok(Self {
            repository: repository(push.repository())?,
            directory: push.image(),
            image: push.to_push.name.clone(),
            began: push.to_push.began,
            holds: push.how.settings.deadlines.stalled() / 2,
            is_done: Mutex::new(false),
        })
    }

    /// Announces that the image is being made, or does so anew, unless a later one is or was.
    pub(super) fn announce(&self) -> Result<(), OciImageError> {
        let is_done = self.lock();
        if *is_done {
            return Ok(());
        }
        let registry = self.for_a_moment()?;
        let before = match registry.tagged(LATEST)? {
            Tagged::Nothing => None,
            Tagged::Image(other, _) if self.is_left_behind_by(&other) => return Ok(()),
            Tagged::Image(_, digest) => Some(digest),
            Tagged::Awaited(later) if holds(&later) && later.image > self.image => return Ok(()),
            // The other image is lost, or made at the same time.
            Tagged::Awaited(other) => other.before,
        };
        registry.announce(LATEST, &self.announcement(before))
    }

    /// Returns the interval of renewals.
    pub(super) fn renewed_each(&self) -> Duration {
        self.holds / RENEWALS
    }

    /// Renews the announcement. A registry that does not answer is asked again the next time.
    pub(super) fn renew(&self) {
        let _ = self.announce();
    }

    /// Does something while the announcement is renewed.
    pub(super) fn while_renewed<T>(&self, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let (end, ended) = channel::<()>();
            scope.spawn(move || {
                while ended.recv_timeout(self.renewed_each()) == Err(RecvTimeoutError::Timeout) {
                    self.renew();
                }
            });
            let done = work();
            drop(end);
            done
        })
    }

    /// Gives the tag to the image, unless a later one has it.
    pub(super) fn is_this(&self, image: &Digest) -> Result<(), OciImageError> {
        let mut is_done = self.lock();
        let registry = Registry::open(self.repository.clone(), None)?;
        let tagged = registry.tagged(LATEST)?;
        let newest = match still_behind(&registry, &tagged)? {
            Some((later, digest)) if self.is_earlier_than(&later) => digest,
            _ => *image,
        };
        match tagged {
            // The next image is being made: this one becomes the image before it.
            Tagged::Awaited(other) if !self.is_ours(&other) && holds(&other) => {
                let before = Some(newest);
                registry.announce(LATEST, &Announcement { before, ..other })?;
            }
            Tagged::Image(_, there) if there == newest => {}
            _ => registry.tag_also(LATEST, &newest)?,
        }
        *is_done = true;
        Ok(())
    }

    /// Gives the tag back to the image that had it, if this one is not pushed. If a later image
    /// than that is still to be pushed from here, announces it: a container that is created
    /// elsewhere meanwhile would go back in time.
    pub(super) fn take_back(&self, stopped: &Push) -> Result<(), OciImageError> {
        let _alone = self.lock();
        let registry = self.for_a_moment()?;
        let tagged = registry.tagged(LATEST)?;
        let behind = still_behind(&registry, &tagged)?;
        let Tagged::Awaited(ours) = tagged else {
            return Ok(());
        };
        if !self.is_ours(&ours) {
            return Ok(());
        }
        if let Some(to_push) = other_here(stopped) {
            let how = stopped.how.clone();
            let other = Self::of(&Push { how, to_push })?;
            let is_behind = |(there, _): &(Manifest, Digest)| other.is_left_behind_by(there);
            if !behind.as_ref().is_some_and(is_behind) {
                return registry.announce(LATEST, &other.announcement(ours.before));
            }
        }
        match behind {
            Some((_, image)) => registry.tag_also(LATEST, &image),
            // Few registries remove a tag.
            None => registry.announce(LATEST, &Announcement { until: 0, ..ours }),
        }
    }

    /// Compares this image to the registry's latest, or the latest before the one being made.
    pub(super) fn standing(&self) -> Result<Standing, OciImageError> {
        let registry = self.for_a_moment()?;
        let tagged = registry.tagged(LATEST)?;
        Ok(match still_behind(&registry, &tagged)? {
            Some((other, _)) if self.is_earlier_than(&other) => Standing::Later(name_of(&other)),
            Some((other, _)) if self.is_it(&other) && is_image(&tagged) => Standing::This,
            _ => Standing::Earlier,
        })
    }

    /// Returns the image's digest, if it is in the registry under its own tag.
    pub(super) fn pushed_before(&self, tag: &str) -> Result<Option<Digest>, OciImageError> {
        match self.for_a_moment()?.tagged(tag)? {
            Tagged::Image(image, digest) if self.is_it(&image) => Ok(Some(digest)),
            _ => Ok(None),
        }
    }

    /// Compares by the time of the stop; an image that no stop has made, by its own time.
    fn is_earlier_than(&self, other: &Manifest) -> bool {
        let here = LocalImage {
            name: self.image.clone(),
            created: rfc3339(self.began),
        };
        here.is_before(other)
    }

    /// Returns whether the other image is this one or a later one.
    fn is_left_behind_by(&self, other: &Manifest) -> bool {
        self.is_it(other) || self.is_earlier_than(other)
    }

    /// Another host may have stopped a container in the same millisecond.
    fn is_it(&self, other: &Manifest) -> bool {
        let own = manifest::Manifest::read(&self.directory).ok().flatten();
        let is_made_then = own.is_some_and(|own| other.annotation(CREATED) == Some(&own.created));
        is_made_then && other.annotation(IMAGE) == Some(&self.image)
    }

    fn announcement(&self, before: Option<Digest>) -> Announcement {
        let host = uname().map(|names| names.nodename().to_string_lossy().into_owned());
        let host = host.ok().filter(|host| !host.is_empty());
        Announcement {
            image: self.image.clone(),
            host: host.unwrap_or_else(|| "unknown".to_owned()),
            since: rfc3339(self.began),
            until: now() + self.holds.as_secs().max(1),
            before,
        }
    }

    fn is_ours(&self, other: &Announcement) -> bool {
        other.is_of(&self.announcement(None))
    }

    /// Opens the registry with a short deadline: a request that holds up a stop must end soon.
    fn for_a_moment(&self) -> Result<Registry, OciImageError> {
        let registry = Registry::open(self.repository.clone(), None)?;
        Ok(registry.until(Instant::now() + ANNOUNCED_WITHIN))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds the latest other image of the key that is still to be pushed, and can be.
pub(super) fn other_here(stopped: &Push) -> Option<ToPush> {
    let own = &stopped.to_push;
    let noted = noted(&stopped.how.settings.restore.at_create).unwrap_or_default();
    let mut others = noted
        .into_iter()
        .filter(|other| other.key == own.key && other.name != own.name);
    others.find(|other| is_complete(&other.image()))
}

/// Reads the name of a key's repository.
pub(super) fn repository(text: String) -> Result<RepositoryName, OciImageError> {
    let name = text.parse();
    name.map_err(|what| OciImageError::Reference { text, what })
}

/// Returns the image that has the tag, or had it before the image being made.
pub(super) fn behind(
    registry: &Registry,
    tagged: &Tagged,
) -> Result<Option<(Manifest, Digest)>, OciImageError> {
    let before = match tagged {
        Tagged::Nothing => None,
        Tagged::Image(image, digest) => return Ok(Some(((**image).clone(), *digest))),
        Tagged::Awaited(next) => next.before,
    };
    before
        .map(|before| registry.manifest(&before.to_string()))
        .transpose()
}

/// As [`behind`], without an image that the registry's operator has removed: a push needs none.
fn still_behind(
    registry: &Registry,
    tagged: &Tagged,
) -> Result<Option<(Manifest, Digest)>, OciImageError> {
    match behind(registry, tagged) {
        Err(OciImageError::NoTag { .. }) => Ok(None),
        found => found,
    }
}

/// Returns whether it was announced lately.
pub(super) fn holds(announcement: &Announcement) -> bool {
    announcement.until >= now()
}

fn is_image(tagged: &Tagged) -> bool {
    matches!(tagged, Tagged::Image(..))
}

fn name_of(image: &Manifest) -> String {
    let name = image.annotation(IMAGE).or(image.annotation(CREATED));
    name.unwrap_or(LATEST).to_owned()
}

#[cfg(test)]
mod tests;
