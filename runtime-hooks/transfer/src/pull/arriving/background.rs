//! The process that pulls an image in the background, for a new container (`stasis-lifecycle`) or
//! for `stasis pull --background`: it reports when a restore can begin, and goes on, even if the
//! requester has gone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, sleep};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use stasis_config::Settings;
use stasis_engine::error::chain;
use stasis_engine::error::kind::Kind;
use stasis_engine::image::directory::has_inventory;
use stasis_engine::image::directory::in_use::{self, InUse};
use stasis_engine::restore::admission::described::Described;
use stasis_engine::restore::admission::node::Whose;
use stasis_host::cancel::Cancel;
use stasis_host::respawn::{NotBegun, say};
use stasis_lifecycle::at_create::pull_process::{Answer, GO_ON, Into, NotPulled, Process, Pull};
use stasis_lifecycle::at_create::pulled::place_of;
use stasis_linux::directory::Directory;
use stasis_oci_image::Reference;

use crate::error::MoveError;
use crate::local::beside;
use crate::pull::arriving::arrive::{self, Coming};
use crate::pull::arriving::kept::keep_last;
use crate::pull::arriving::side_by_side::Source;
use crate::pull::{Incoming, staging};

/// Seconds between looks at a pull by another process, and between reports of the size.
const LOOK: Duration = Duration::from_millis(20);
const TELL: Duration = Duration::from_millis(500);

/// An image that arrives.
#[derive(Debug, Serialize)]
pub struct Begun {
    /// Its directory.
    pub image: PathBuf,
    /// Its reference elsewhere.
    pub reference: String,
    /// Whether more of it is to come.
    pub arriving: bool,
}

/// Starts a process that pulls an image, and returns when a restore can begin. Refuses an image
/// that would not run here.
///
/// # Errors
/// No restore can begin.
pub fn begin(
    settings: &Settings,
    reference: &Reference,
    authfile: Option<&Path>,
    into: &Path,
) -> Result<Begun, MoveError> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(MoveError::io("find", path));
    let directory = Into::Directory(absolute(into)?);
    let pull = Pull {
        authfile: authfile.map(absolute).transpose()?,
        ..Pull::new(settings, reference.to_string(), directory)
    };
    let started = Process::start(&pull);
    let mut process = started.map_err(MoveError::io("start a process for", into))?;
    let fits = |image: &Described| image.check(settings, Whose::Anybodys);
    let image = process.image(settings.deadlines.stalled(), &Cancel::not_needed(), &fits);
    let image = image.map_err(|NotPulled { kind, why }| MoveError::Background { kind, why })?;
    Ok(Begun {
        arriving: arrive::has_arrived_in_part(&image)?,
        image,
        reference: reference.to_string(),
    })
}

/// The image, as far as it exists.
enum ImageFetch {
    /// This process fetches the rest.
    Ours(Coming),
    /// The image is whole, or another process fetches the rest.
    There(PathBuf, InUse),
}

/// Pulls the image and reports where it is; `false` if it is not whole in the end.
///
/// The requester may have gone: then the image is kept for the next one.
#[must_use]
pub(crate) fn run(pull: Result<Pull, NotBegun>) -> bool {
    let failed = |kind, why| {
        let _ = say(&Answer::Failed(NotPulled { kind, why }));
        false
    };
    let pull = match pull {
        Ok(pull) => pull,
        Err(error @ NotBegun::OtherInterface { .. }) => {
            return failed(Kind::InterfaceVersion, chain(&error));
        }
        Err(error) => return failed(Kind::Io, chain(&error)),
    };
    let (found, source) = match fetch(&pull) {
        Ok(Some(begun)) => begun,
        Ok(None) => return false,
        Err(error) => return failed(error.kind(), chain(&error)),
    };
    let _ = say(&Answer::There(found.image().to_owned()));
    let (is_whole, in_use) = match found {
        ImageFetch::Ours(coming) => (coming.finish(source).is_ok(), None),
        ImageFetch::There(_, in_use) => (true, Some(in_use)),
    };
    // Holds the image until the requester uses it.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    drop(in_use);
    if let Into::KeptBelow(below) = &pull.into {
        let (restore, paths) = (&pull.settings.restore, &pull.settings.paths);
        keep_last(below, restore.keep_pulled, &paths.state_dir);
    }
    is_whole
}

/// Fetches what a restore needs to begin, or waits until another process has. `None`: the
/// requester does not want the image.
fn fetch(pull: &Pull) -> Result<Option<(ImageFetch, Source)>, MoveError> {
    let source = Source {
        reference: pull.reference.parse()?,
        authfile: pull.authfile.clone(),
        stalled: pull.settings.deadlines.stalled(),
    };
    let reference = &source.reference;
    let Incoming { from, parts, .. } = Incoming::find(reference, pull.authfile.as_deref())?;
    let image = match &pull.into {
        Into::Directory(image) => image.clone(),
        Into::KeptBelow(below) => {
            Directory::make(below, 0o700).map_err(MoveError::io("make", below))?;
            place_of(below, &parts.digest.hex())
        }
    };
    tell_size(beside::path_of(&image, staging::ENDING)?);
    if !has_inventory(&image) && !is_wanted(&parts.described) {
        return Ok(None);
    }
    loop {
        let begun = Coming::begin(&pull.settings, &*from, &parts, &image);
        let found = match (begun, &pull.into) {
            (Ok(coming), _) => ImageFetch::Ours(coming),
            (Err(MoveError::Busy(_)), Into::KeptBelow(_)) => {
                sleep(LOOK);
                continue;
            }
            (Err(MoveError::There(_)), Into::KeptBelow(_)) if has_inventory(&image) => {
                let in_use = in_use::hold(&image).map_err(MoveError::refused)?;
                ImageFetch::There(image, in_use)
            }
            (Err(error), _) => return Err(error),
        };
        has_been_used(found.image());
        return Ok(Some((found, source)));
    }
}

/// Asks the requester whether it wants the described image. A requester that has gone does not.
fn is_wanted(image: &Described) -> bool {
    let told = say(&Answer::Described(Box::new(image.clone())));
    let mut word = String::new();
    told.is_ok() && io::stdin().read_line(&mut word).is_ok() && word == GO_ON
}

impl ImageFetch {
    fn image(&self) -> &Path {
        match self {
            Self::Ours(coming) => &coming.image,
            Self::There(image, _) => image,
        }
    }
}

/// Reports repeatedly the bytes in a directory that may not exist yet, whichever process fills it.
fn tell_size(directory: PathBuf) {
    thread::spawn(move || {
        while say(&Answer::Coming(size_of(&directory))).is_ok() {
            sleep(TELL);
        }
    });
}

fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    sizes.fold(0, u64::saturating_add)
}

/// Marks an image as used now: the last used are kept. If that fails, images go in another order.
fn has_been_used(image: &Path) {
    let _ = File::open(image).and_then(|opened| opened.set_modified(SystemTime::now()));
}
