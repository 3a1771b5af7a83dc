//! What a killed writer has left: finishes what is whole, and removes what is not.

use std::path::Path;

use stasis_config::Settings;
use stasis_linux::file;

use super::lock::{lock, remove_staging};
use super::move_up::{is_committed, move_up_soon, rename};
use super::step::change;
use super::whole::{Whole, is_whole, seal};
use super::{COMPLETE, INVENTORY, ImageDirectoryError, NEW, exists, has_inventory};

/// What has become of an image whose writer was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// There is none, or it is in its place: the directory's image.
    Committed,
    /// It is not whole.
    NotWhole,
    /// It is one of a group that has not decided yet.
    Undecided,
}

/// Puts an image in its place that a killed writer has left whole.
///
/// # Errors
/// [`ImageDirectoryError`]: what is there stays.
pub(crate) fn finish(settings: &Settings, directory: &Path) -> Result<Rest, ImageDirectoryError> {
    let staging = directory.join(NEW);
    let rest = match lock(&staging)? {
        Some(_lock) => finish_locked(settings, &staging)?,
        None => Rest::Committed,
    };
    // The next one who opens the directory goes on.
    let _ = move_up_soon(directory);
    Ok(rest)
}

/// The same for whoever has its lock.
pub(super) fn finish_locked(
    settings: &Settings,
    staging: &Path,
) -> Result<Rest, ImageDirectoryError> {
    match is_whole(settings, staging)? {
        Whole::Yes(manifest) => seal(settings, staging, manifest)?,
        Whole::No => return Ok(Rest::NotWhole),
        Whole::Undecided => return Ok(Rest::Undecided),
    }
    let directory = staging.parent().unwrap_or(staging);
    // Its writer has begun where nothing was committed and not moved up.
    rename(staging, &directory.join(COMPLETE))?;
    Ok(Rest::Committed)
}

/// Removes what a killed writer has left of an image that nobody needs: the container lives. One
/// that is committed stays.
pub(crate) fn give_up(directory: &Path) -> Result<(), ImageDirectoryError> {
    let staging = directory.join(NEW);
    match lock(&staging)? {
        Some(_lock) => remove_staging(&staging),
        None => Ok(()),
    }
}

/// What is written of an image is never whole from now on, and its packs stay.
pub(crate) fn disown(directory: &Path) {
    let _ = change(|| file::remove(&directory.join(NEW).join(INVENTORY)));
}

/// Whether a directory has its image in its place: nothing is committed and not moved up, and no
/// killed writer has left one that may be whole.
pub(crate) fn is_settled(directory: &Path) -> bool {
    !has_inventory(&directory.join(NEW)) && matches!(is_committed(directory), Ok(false))
}

/// Whether a killed writer has left what is not whole.
pub(crate) fn has_rest(directory: &Path) -> bool {
    let staging = directory.join(NEW);
    exists(&staging) && !has_inventory(&staging)
}

/// Removes what a killed writer has left that is not whole.
pub(crate) fn remove_rest(directory: &Path) -> Result<(), ImageDirectoryError> {
    let staging = directory.join(NEW);
    match lock(&staging)? {
        Some(_lock) if has_rest(directory) => remove_staging(&staging),
        _ => Ok(()),
    }
}
