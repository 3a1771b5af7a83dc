//! The remains of a killed writer: finishes a whole image, and removes a partial one.

use std::path::Path;

use stasis_config::Settings;
use stasis_host::directory_lock::Locked;
use stasis_linux::file;

use super::lock::{lock, lock_now, remove_staging};
use super::move_up::{is_committed, move_up_soon, rename};
use super::step::change;
use super::whole::{Whole, is_whole, seal};
use super::{COMPLETE, INVENTORY, ImageDirectoryError, NEW, exists, has_inventory};

/// The state of an image whose writer was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// There is none, or it is in its place: the directory's image.
    Committed,
    /// The image is not whole.
    NotWhole,
    /// The image depends on a shared outcome that is not decided yet.
    Undecided,
}

/// Puts an image in its place that a killed writer has left whole.
///
/// # Errors
/// [`ImageDirectoryError`]: the files stay.
pub fn finish(settings: &Settings, directory: &Path) -> Result<Rest, ImageDirectoryError> {
    let staging = directory.join(NEW);
    let rest = match lock(&staging)? {
        Some(_lock) => finish_locked(settings, &staging)?,
        None => Rest::Committed,
    };
    // The next process that opens the directory goes on.
    let _ = move_up_soon(directory);
    Ok(rest)
}

/// Puts it in its place for a caller that has its lock.
pub(super) fn finish_locked(
    settings: &Settings,
    staging: &Path,
) -> Result<Rest, ImageDirectoryError> {
    match is_whole(settings, staging)? {
        Whole::Yes(manifest, contents) => seal(settings, staging, manifest, &contents)?,
        Whole::No => return Ok(Rest::NotWhole),
        Whole::Undecided => return Ok(Rest::Undecided),
    }
    let directory = staging.parent().unwrap_or(staging);
    // Its writer has begun where no committed image was still to be moved up.
    rename(staging, &directory.join(COMPLETE))?;
    Ok(Rest::Committed)
}

/// Removes the remains of a killed writer's image that is not needed: the container lives. A
/// committed image stays.
pub fn give_up(directory: &Path) -> Result<(), ImageDirectoryError> {
    let staging = directory.join(NEW);
    match lock(&staging)? {
        Some(_lock) => remove_staging(&staging),
        None => Ok(()),
    }
}

/// Makes the written part of an image never whole; its packs stay.
pub fn disown(directory: &Path) {
    let _ = change(|| file::remove(&directory.join(NEW).join(INVENTORY)));
}

/// Whether a directory has its image in its place: no committed one is still to be moved up, and no
/// killed writer has left one that may be whole.
pub fn is_settled(directory: &Path) -> bool {
    !has_inventory(&directory.join(NEW)) && matches!(is_committed(directory), Ok(false))
}

/// Whether a process writes an image into a directory, or finishes one there. What cannot be found
/// out is reported to who opens it.
pub fn is_being_written(directory: &Path) -> bool {
    matches!(lock_now(&directory.join(NEW)), Ok(Locked::Held))
}

/// Whether a killed writer has left a partial image.
pub fn has_rest(directory: &Path) -> bool {
    let staging = directory.join(NEW);
    exists(&staging) && !has_inventory(&staging)
}

/// Removes a partial image that a killed writer has left.
pub fn remove_rest(directory: &Path) -> Result<(), ImageDirectoryError> {
    let staging = directory.join(NEW);
    match lock(&staging)? {
        Some(_lock) if has_rest(directory) => remove_staging(&staging),
        _ => Ok(()),
    }
}
