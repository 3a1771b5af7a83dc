//! The tag of the newest image of a key: it says that one is being made, and what came of it; and
//! which of two images of a key is the later one.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::utsname::uname;
use stasis_oci_image::document::annotations::{CREATED, IMAGE};
use stasis_oci_image::{
    Announcement, Digest, Elsewhere, Manifest, OciImageError, Registry, RepositoryName, Tagged,
};

use crate::checkpoint::at_stop::push::{ANNOUNCED_WITHIN, Push};
use crate::host::time::{now, rfc3339};
use crate::image::manifest;
use crate::image::stopped::LATEST;
use crate::restore::at_create::newest::Here;

/// It is said so often anew, while it holds, that one that is lost does no harm.
const RENEWALS: u32 = 4;

/// The tag while an image is being made.
#[derive(Debug)]
pub(super) struct Latest {
    repository: RepositoryName,
    directory: PathBuf,
    image: String,
    began: SystemTime,
    /// An announcement holds for so long.
    holds: Duration,
    /// Whether it was announced. One at a time changes the tag.
    announced: Mutex<bool>,
}

/// How the latest image of the registry stands to this one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is none, or it is of an earlier stop.
    Earlier,
    /// It is this one.
    This,
    /// It is of a later stop, and has this name.
    Later(String),
}

impl Latest {
    /// That of the key of an image.
    pub(super) fn of(push: &Push) -> Result<Self, OciImageError> {
        let text = push.repository();
        Ok(Self {
            repository: text
                .parse()
                .map_err(|what| OciImageError::Reference { text, what })?,
            directory: push.image(),
            image: push.to_push.name.clone(),
            began: push.to_push.began,
            holds: push.how.settings.deadlines.stalled() / 2,
            announced: Mutex::new(false),
        })
    }

    /// Says that the image is being made, unless a later one is.
    pub(super) fn announce(&self) -> Result<(), OciImageError> {
        let mut announced = self.lock();
        let registry = self.for_a_moment()?;
        let before = match registry.tagged(LATEST)? {
            Tagged::Nothing => None,
            Tagged::Image(_, digest) => Some(digest),
            Tagged::Awaited(later) if holds(&later) && later.image > self.image => return Ok(()),
            // Of one that is lost, or made at the same time.
            Tagged::Awaited(other) => other.before,
        };
        registry.announce(LATEST, &self.announcement(before))?;
        *announced = true;
        Ok(())
    }

    /// Says it if that has not been done.
    pub(super) fn announce_unless_done(&self) -> Result<(), OciImageError> {
        let is_announced = *self.lock();
        match is_announced {
            true => Ok(()),
            false => self.announce(),
        }
    }

    /// How often it has to be said.
    pub(super) fn renewed_each(&self) -> Duration {
        self.holds / RENEWALS
    }

    /// Says it anew. A registry that does not answer is asked again the next time.
    pub(super) fn renew(&self) {
        let is_announced = *self.lock();
        let _ = match is_announced {
            true => self.say_anew(),
            false => self.announce(),
        };
    }

    /// Does something while it is said anew.
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
        let mut announced = self.lock();
        let registry = Registry::open(self.repository.clone(), None)?;
        let tagged = registry.tagged(LATEST)?;
        let newest = match behind(&registry, &tagged)? {
            Some((later, digest)) if self.is_earlier_than(&later) => digest,
            _ => *image,
        };
        match tagged {
            // The next one is being made: it is what was before that.
            Tagged::Awaited(other) if !self.is_ours(&other) && holds(&other) => {
                let before = Some(newest);
                registry.announce(LATEST, &Announcement { before, ..other })?;
            }
            Tagged::Image(_, there) if there == newest => {}
            _ => registry.tag_also(LATEST, &newest)?,
        }
        // From now on nothing of it is said anew.
        *announced = true;
        Ok(())
    }

    /// Gives the tag back to what had it, if there is no image.
    pub(super) fn take_back(&self) -> Result<(), OciImageError> {
        let announced = self.lock();
        if !*announced {
            return Ok(());
        }
        let registry = self.for_a_moment()?;
        match registry.tagged(LATEST)? {
            Tagged::Awaited(ours) if self.is_ours(&ours) => match &ours.before {
                Some(image) => registry.tag_also(LATEST, image),
                // Few registries remove a tag.
                None => registry.announce(LATEST, &Announcement { until: 0, ..ours }),
            },
            _ => Ok(()),
        }
    }

    /// Unless somebody else has the tag by now.
    fn say_anew(&self) -> Result<(), OciImageError> {
        let _alone = self.lock();
        let registry = self.for_a_moment()?;
        match registry.tagged(LATEST)? {
            Tagged::Awaited(ours) if self.is_ours(&ours) => {
                registry.announce(LATEST, &self.announcement(ours.before))
            }
            _ => Ok(()),
        }
    }

    /// How the latest image of the registry stands to this one, or the one before what is being
    /// made.
    pub(super) fn standing(&self) -> Result<Standing, OciImageError> {
        let registry = self.for_a_moment()?;
        let tagged = registry.tagged(LATEST)?;
        Ok(match behind(&registry, &tagged)? {
            Some((other, _)) if self.is_earlier_than(&other) => Standing::Later(name_of(&other)),
            Some((other, _)) if self.is_it(&other) && is_image(&tagged) => Standing::This,
            _ => Standing::Earlier,
        })
    }

    /// The image, if it is in the registry under its own tag.
    pub(super) fn pushed_before(&self, tag: &str) -> Result<Option<Digest>, OciImageError> {
        match self.for_a_moment()?.tagged(tag)? {
            Tagged::Image(image, digest) if self.is_it(&image) => Ok(Some(digest)),
            _ => Ok(None),
        }
    }

    /// By the time of the stop; of an image that no stop has made, by its own.
    fn is_earlier_than(&self, other: &Manifest) -> bool {
        let here = Here {
            name: &self.image,
            created: &rfc3339(self.began),
        };
        here.is_before(other)
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

    /// What holds up a stop has to be answered soon.
    fn for_a_moment(&self) -> Result<Registry, OciImageError> {
        let registry = Registry::open(self.repository.clone(), None)?;
        Ok(registry.until(Instant::now() + ANNOUNCED_WITHIN))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The image that has a tag, or has had it before what is being made.
fn behind(
    registry: &Registry,
    tagged: &Tagged,
) -> Result<Option<(Manifest, Digest)>, OciImageError> {
    let before = match tagged {
        Tagged::Nothing => None,
        Tagged::Image(image, digest) => return Ok(Some(((**image).clone(), *digest))),
        Tagged::Awaited(next) => next.before,
    };
    let Some(before) = before else {
        return Ok(None);
    };
    match registry.manifest(&before.to_string()) {
        // The registry's operator may have removed it.
        Err(OciImageError::NoTag { .. }) => Ok(None),
        found => found.map(Some),
    }
}

/// Whether it was said lately.
fn holds(announcement: &Announcement) -> bool {
    announcement.until >= now()
}

fn is_image(tagged: &Tagged) -> bool {
    matches!(tagged, Tagged::Image(..))
}

fn name_of(image: &Manifest) -> String {
    let name = image.annotation(IMAGE).or(image.annotation(CREATED));
    name.unwrap_or(LATEST).to_owned()
}
