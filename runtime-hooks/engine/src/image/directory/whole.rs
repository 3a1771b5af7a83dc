//! Whether a new image is whole, and the seal of one whose writer was killed.

use std::io;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_host::boot::boot_id;
use stasis_linux::file;
use stasis_linux::file_system::FileSystem;
use stasis_memory_store::{Index, PacksIn, Reader, StoreError, verify_past_cache};

use super::step::change;
use super::{BOOT, ImageDirectoryError, MAX_SIGN_BYTES, SHARED, exists, failed, find_inventory};
use crate::image::files::{self, ImageFile};
use crate::image::manifest::{Manifest, StoredMemory};
use crate::operation::outcome::{Decision, decision_of};

/// The state of an image that no process writes any more.
#[derive(Debug)]
pub(super) enum Whole {
    /// With its manifest, if it has one.
    Yes(Option<Box<Manifest>>, Contents),
    No,
    /// The image depends on a shared outcome that is not decided yet.
    Undecided,
}

/// Finds out whether an image that no process writes any more is whole.
///
/// # Errors
/// [`ImageDirectoryError`] if that cannot be found out: it may be the last copy of its container,
/// and only damage, or a part that was never written, makes it worthless.
pub(super) fn is_whole(settings: &Settings, image: &Path) -> Result<Whole, ImageDirectoryError> {
    match look(settings, image) {
        Err(error) if error.is_damage() => Ok(Whole::No),
        found => found,
    }
}

/// The same; damage is an error.
fn look(settings: &Settings, image: &Path) -> Result<Whole, ImageDirectoryError> {
    if !find_inventory(image).map_err(failed("read", image))? {
        return Ok(Whole::No);
    }
    match decision(image).map_err(failed("read", image))? {
        Some(Decision::Complete) => {}
        Some(Decision::Abandoned) => return Ok(Whole::No),
        None => return Ok(Whole::Undecided),
    }
    let manifest = Manifest::read(image)?;
    let manifest = manifest.map(Box::new);
    let listed = manifest.as_ref().and_then(|all| all.files.as_deref());
    let is_vouched_for = is_vouched_for(image).map_err(failed("read", image))?;
    if !is_vouched_for && listed.is_none() {
        return Ok(Whole::No);
    }
    let stored = manifest.as_ref().and_then(|all| all.memory.as_ref());
    let Some(contents) = contents(settings, image, stored)? else {
        return Ok(Whole::No);
    };
    if let Some(listed) = listed.filter(|_| !is_vouched_for) {
        sync(image, &contents)?;
        verify_on_disk(settings, image, listed, &contents)?;
    }
    Ok(Whole::Yes(manifest, contents))
}

/// The GPU contents of an image, and their place.
#[derive(Debug)]
pub(super) enum Contents {
    None,
    Of(Index, PathBuf),
}

/// Returns all GPU contents of an image, in it or apart from it; `None` if the image has others.
/// Contents that are staged in memory are in neither place.
///
/// # Errors
/// [`ImageDirectoryError`]: some are missing, or the directory apart from it is, whose disk may not
/// be mounted.
fn contents(
    settings: &Settings,
    image: &Path,
    stored: Option<&StoredMemory>,
) -> Result<Option<Contents>, ImageDirectoryError> {
    let (index, stored) = match (Index::read(image)?, stored) {
        (None, None) => return Ok(Some(Contents::None)),
        (Some(index), Some(stored)) if index.image_id == stored.image_id => (index, stored),
        _ => return Ok(None),
    };
    let packs = match stored.packs_in {
        PacksIn::Image => image.to_owned(),
        PacksIn::Directory => {
            let image = image.to_owned();
            let apart = settings.gpu_contents.directory();
            let apart = apart.ok_or(StoreError::NoDirectory { image })?;
            let apart = apart.join(stored.image_id.to_string());
            apart.metadata().map_err(failed("find", &apart))?;
            if !index.is_of_store(&apart)? {
                return Ok(None);
            }
            apart
        }
    };
    Reader::open(image, &index, Some(&packs))?;
    Ok(Some(Contents::Of(index, packs)))
}

/// Verifies that the disk has all files as they were sealed. Nothing else vouches for them.
fn verify_on_disk(
    settings: &Settings,
    image: &Path,
    listed: &[ImageFile],
    contents: &Contents,
) -> Result<(), ImageDirectoryError> {
    files::forget_cached(image, listed)?;
    files::verify(image, listed, settings.gpu_contents.threads_on_disk())?;
    let mut first = Ok(());
    if let Contents::Of(index, packs) = contents {
        verify_past_cache(index, packs, |error| {
            if first.is_ok() {
                first = Err(error);
            }
        });
    }
    Ok(first?)
}

/// Lists and hashes the files of a whole image, if its writer has not, and brings it to disk.
pub(super) fn seal(
    settings: &Settings,
    image: &Path,
    manifest: Option<Box<Manifest>>,
    contents: &Contents,
) -> Result<(), ImageDirectoryError> {
    if let Some(mut manifest) = manifest
        && manifest.files.is_none()
    {
        manifest.files = Some(files::list(image, settings.gpu_contents.threads_on_disk())?);
        change(|| Ok(())).map_err(failed("write", image))?;
        manifest.write(image)?;
    }
    sync(image, contents)
}

/// Brings an image to disk, after contents apart from it.
fn sync(image: &Path, contents: &Contents) -> Result<(), ImageDirectoryError> {
    let apart = match contents {
        Contents::Of(_, packs) if packs != image => Some(packs.as_path()),
        Contents::Of(..) | Contents::None => None,
    };
    for path in apart.into_iter().chain([image]) {
        let synced = change(|| FileSystem::of(path)?.sync());
        synced.map_err(|source| {
            doubt(image);
            ImageDirectoryError::NotOnDisk {
                path: path.to_owned(),
                source,
            }
        })?;
    }
    Ok(())
}

/// Has an image count as whole only if the disk has all of its files as they were sealed: the
/// kernel reports only once what it could not write.
pub(super) fn doubt(image: &Path) {
    let _ = change(|| file::remove(&image.join(BOOT)));
}

/// Returns the decision on an image's shared outcome; an image without one is complete by itself.
fn decision(image: &Path) -> io::Result<Option<Decision>> {
    let Some(id) = file::read(&image.join(SHARED), MAX_SIGN_BYTES)? else {
        return Ok(Some(Decision::Complete));
    };
    let images = image.parent().and_then(Path::parent).unwrap_or(image);
    decision_of(images, &String::from_utf8_lossy(&id))
}

/// Whether the page cache vouches for its files, or the decision on a shared outcome does: that
/// comes once all images are on disk.
fn is_vouched_for(image: &Path) -> io::Result<bool> {
    let boot = file::read(&image.join(BOOT), MAX_SIGN_BYTES)?;
    let is_of_this_boot = boot == boot_id().map(String::into_bytes);
    Ok(boot.is_some() && (is_of_this_boot || exists(&image.join(SHARED))))
}
