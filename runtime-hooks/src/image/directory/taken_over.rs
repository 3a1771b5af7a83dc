//! The image of a checkpoint whose operation was killed.

use std::path::Path;

use stasis_linux::file;

use super::lock::{lock, remove_staging};
use super::roll_forward::settle;
use super::staged_contents::forget;
use super::{COMPLETE, INVENTORY, ImageDirectoryError, NEW, NewImage, Place, exists};
use crate::image::manifest::Manifest;
use crate::operation::undo::ImagePlace;

impl NewImage {
    /// What a keeper has to know of it.
    pub(crate) fn record(&self) -> ImagePlace {
        let directory = self.directory.clone();
        match self.place {
            Place::Direct => ImagePlace::Direct(directory),
            Place::Staged { .. } => ImagePlace::Staged(directory),
        }
    }
}

/// After the container has ended: an image that is complete takes its place.
///
/// # Errors
/// [`ImageDirectoryError`]; the next checkpoint or restore in the directory goes on.
pub(crate) fn finish(image: &ImagePlace) -> Result<(), ImageDirectoryError> {
    match image {
        ImagePlace::Direct(_) => Ok(()),
        ImagePlace::Staged(directory) => settle(directory),
    }
}

/// While the container lives: removes what was written, and the stores of its bulk memory.
///
/// # Errors
/// [`ImageDirectoryError`].
pub(crate) fn give_up(image: &ImagePlace, stores: &[&Path]) -> Result<(), ImageDirectoryError> {
    match image {
        ImagePlace::Direct(directory) => {
            // First, so that neither we nor CRIU alone restore it.
            let _ = file::remove(&directory.join(INVENTORY));
            Manifest::remove(directory)?;
            discard(directory, stores)
        }
        // It was verified, and is on its way to its place.
        ImagePlace::Staged(directory) if exists(&directory.join(COMPLETE)) => settle(directory),
        ImagePlace::Staged(directory) => {
            let staging = directory.join(NEW);
            let Some(_lock) = lock(&staging)? else {
                return Ok(());
            };
            discard(&staging, stores)?;
            remove_staging(&staging)
        }
    }
}

fn discard(image: &Path, stores: &[&Path]) -> Result<(), ImageDirectoryError> {
    stasis_memory_store::discard(image, None)?;
    forget(image);
    for store in stores {
        stasis_memory_store::remove(store)?;
    }
    Ok(())
}

/// The packs may be all that there is of the memory of tasks, and stay; but what is there is no
/// image.
pub(crate) fn keep_memory_only(image: &ImagePlace) {
    let path = match image {
        ImagePlace::Direct(directory) => directory.clone(),
        ImagePlace::Staged(directory) => directory.join(NEW),
    };
    let _ = file::remove(&path.join(INVENTORY));
    let _ = Manifest::remove(&path);
}
