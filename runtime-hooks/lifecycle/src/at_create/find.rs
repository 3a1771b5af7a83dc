//! Finds the image that a new container names, among those that it may name.
//!
//! The annotation is set by a pod's author, and an image holds all memory of its container. So a
//! pod names only images below the directory of its namespace, which the engine's own annotation
//! has (`pod.rs`).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_host::cancel::Cancel;
use stasis_oci_image::Reference;

use crate::at_create::ended_soon;
use crate::at_create::first_image::FirstImage;
use crate::at_create::newest::{self, LocalImage};
use crate::at_create::no_first_image::{NoFirstImage, is_missing};
use crate::at_create::passed_over::PassedOver;
use crate::at_create::pulled::{self, pulled};
use crate::pod;
use crate::stopped::being_made;
use crate::stopped::key;
use crate::stopped::push_again::PushAgain;
use stasis_engine::container::spec::{Spec, SpecError};
use stasis_engine::error::Refusal;
use stasis_engine::error::admission::AdmissionError;
use stasis_engine::image::allowed::{self, NotAllowed, admit};
use stasis_engine::image::directory::{ImageDirectoryError, Opened, open};
use stasis_engine::image::files;
use stasis_engine::image::manifest::Manifest;
use stasis_engine::restore::image;

/// The most images that are considered of one key.
const MOST_IMAGES: usize = 10_000;

/// A complete image.
#[derive(Debug)]
pub(super) struct FoundImage {
    /// Without links.
    pub(super) image: PathBuf,
    pub(super) manifest: Manifest,
    /// Keeps the image from being removed.
    pub(super) _opened: Opened,
}

impl FoundImage {
    fn as_local(&self) -> LocalImage {
        let name = self.image.file_name().and_then(OsStr::to_str);
        LocalImage {
            name: name.unwrap_or_default().to_owned(),
            created: self.manifest.created.clone(),
        }
    }
}

/// Finds the image, and skips images that are passed over. `id` is the new container's. Waits for a
/// latest image that is being made.
pub(super) fn find(
    settings: &Settings,
    cancel: &Cancel,
    bundle: &Path,
    id: &str,
    asked: &FirstImage,
    passed_over: &mut PassedOver,
) -> Result<FoundImage, Refusal> {
    let spec = Spec::read(bundle).map_err(|error: SpecError| AdmissionError::from(error))?;
    let own = directory_of(settings, &spec)?;
    match asked {
        FirstImage::Directory(path) => look(settings, &own, &own.join(path), id),
        FirstImage::Latest(key) => {
            let directory = own.join(key);
            let limit = settings.deadlines.stalled();
            being_made::wait(&directory, limit, cancel).map_err(NoFirstImage::BeingMade)?;
            // A push that cannot restart now is not this container's failure: a later one may.
            let _ = PushAgain::of(settings).map(|again| again.start());
            let here = latest(settings, &own, &directory, id, passed_over);
            let found = here.as_ref().ok().map(FoundImage::as_local);
            // The registry may have the image, too.
            let newest = passed_over.newest_that_ends_soon().or(found);
            let newer = newest::newer(settings, cancel, &spec, key, newest)?;
            let newer = newer.filter(|(_, name)| !passed_over.has(&directory.join(name)));
            let Some((reference, name)) = newer else {
                return here;
            };
            let all = &settings.restore.at_create;
            make_place_of_pulled(settings)?;
            let made = key::make(all, &directory);
            // If it cannot be noted, the clocks of the hosts decide.
            let _ = made.and_then(|_| key::note_taken(&directory, &name));
            match pull(settings, cancel, &spec, &reference, id) {
                Err(why) => {
                    passed_over.add(&directory.join(&name), why)?;
                    here
                }
                pulled => pulled,
            }
        }
        FirstImage::Registry(reference) => pull(settings, cancel, &spec, reference, id),
    }
}

/// Keeps the images with which a container could have begun that starts cold.
pub(super) fn leave(
    settings: &Settings,
    bundle: &Path,
    asked: &FirstImage,
) -> Result<(), NotAllowed> {
    let (FirstImage::Latest(key), Ok(spec)) = (asked, Spec::read(bundle)) else {
        return Ok(());
    };
    let Ok(own) = directory_of(settings, &spec) else {
        return Ok(());
    };
    let path = own.join(key);
    let failed = |source| NotAllowed::Io {
        path: path.clone(),
        source,
    };
    match fs::canonicalize(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(directory) => {
            allowed::refuse_exposed(&directory)?;
            key::leave(&directory).map_err(failed)
        }
    }
}

/// Finds an image of a registry.
fn pull(
    settings: &Settings,
    cancel: &Cancel,
    spec: &Spec,
    reference: &Reference,
    id: &str,
) -> Result<FoundImage, Refusal> {
    make_place_of_pulled(settings)?;
    let (_held, image) = pulled(settings, cancel, spec, reference)?;
    look(settings, &pulled::directory(settings), &image, id)
}

/// Returns the directory below which a container names images.
fn directory_of(settings: &Settings, spec: &Spec) -> Result<PathBuf, NoFirstImage> {
    let all = &settings.restore.at_create;
    if all.as_os_str().is_empty() {
        return Err(NoFirstImage::Off);
    }
    Ok(pod::directory_in(all, spec)?)
}

/// Makes the place of fetched images on a host that has had none. Refuses one from which no image
/// may be restored, or where users other than root could exchange it.
fn make_place_of_pulled(settings: &Settings) -> Result<(), NotAllowed> {
    let at_create = &settings.restore.at_create;
    let mut make = DirBuilder::new();
    let made = make.recursive(true).mode(key::MODE).create(at_create);
    let found = made.and_then(|()| fs::canonicalize(at_create));
    let found = found.map_err(|source| NotAllowed::Io {
        path: at_create.clone(),
        source,
    })?;
    allowed::refuse_exposed(&found)?;
    allowed::refuse_elsewhere(&settings.restore.images, &found.join(pulled::DIRECTORY))
}

/// Returns the last by name of the complete images in a directory.
fn latest(
    settings: &Settings,
    own: &Path,
    key: &Path,
    id: &str,
    passed_over: &mut PassedOver,
) -> Result<FoundImage, Refusal> {
    let missing = || NoFirstImage::Missing(key.to_owned());
    let read = |source| NotAllowed::Io {
        path: key.to_owned(),
        source,
    };
    let entries = match fs::read_dir(key) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing().into()),
        entries => entries.map_err(read)?,
    };
    let paths: io::Result<Vec<_>> = entries
        .take(MOST_IMAGES)
        .map(|entry| Ok(entry?.path()))
        .collect();
    let mut paths = paths.map_err(read)?;
    paths.sort_unstable();
    for path in paths.iter().rev().filter(|path| path.is_dir()) {
        if passed_over.has(path) {
            continue;
        }
        match look(settings, own, path, id) {
            // An image that is still being written.
            Err(why) if is_missing(&why) => {}
            Err(why) => passed_over.add(path, why)?,
            Ok(found) if passed_over.has(&found.image) => {}
            found => return found,
        }
    }
    Err(missing().into())
}

/// Checks an image, which has to be below `own`, and changes nothing: many containers may be
/// restored from it at a time.
fn look(settings: &Settings, own: &Path, path: &Path, id: &str) -> Result<FoundImage, Refusal> {
    let missing = || NoFirstImage::Missing(path.to_owned());
    let image = match admit(&[own.to_owned()], path) {
        Err(NotAllowed::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(missing().into());
        }
        admitted => admit(&settings.restore.images, &admitted?)?,
    };
    let opened = open(settings, &image)?;
    if opened.path() != image {
        // `start` looks for the image at this path.
        return Err(ImageDirectoryError::Read(image).into());
    }
    files::refuse_no_files(&image)?;
    let manifest = match image::find(&image)? {
        image::ImageKind::Image(manifest) if manifest.files.is_none() => {
            return Err(NoFirstImage::Incomplete(image).into());
        }
        image::ImageKind::Image(manifest) => *manifest,
        // CRIU writes the inventory last.
        image::ImageKind::Plain => Manifest::implied(id),
        image::ImageKind::Nothing => return Err(missing().into()),
    };
    ended_soon::refuse(&image, &manifest)?;
    Ok(FoundImage {
        image,
        manifest,
        _opened: opened,
    })
}

#[cfg(test)]
mod tests;
