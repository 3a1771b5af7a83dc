//! GPU contents of a new image that are in memory until they get their place. Without them it is no
//! image, and takes nobody's place.

use std::fs;
use std::path::Path;

use stasis_linux::file;

use super::{ImageDirectoryError, NEW, NewImage, exists, failed};
use crate::operation::undo::ImagePlace;

/// There as long as they are.
const STAGED: &str = ".stasis-staged";

impl NewImage {
    /// Notes that contents are to be in memory until they get their place, before CRIU can make
    /// an image of the rest.
    ///
    /// # Errors
    /// [`ImageDirectoryError`].
    pub(crate) fn stages_contents(&self) -> Result<(), ImageDirectoryError> {
        let note = self.path().join(STAGED);
        fs::write(&note, "").map_err(failed("write", &note))
    }

    /// Notes that contents are in their place, or that there are none.
    ///
    /// # Errors
    /// [`ImageDirectoryError`].
    pub(crate) fn has_contents(&self) -> Result<(), ImageDirectoryError> {
        let note = self.path().join(STAGED);
        file::remove(&note).map_err(failed("remove", &note))
    }
}

/// Forgets what was staged of an image that is given up.
pub(super) fn forget(image: &Path) {
    let _ = file::remove(&image.join(STAGED));
}

/// Whether contents of what is in a directory were in memory when it was written.
pub(super) fn are_staged(image: &Path) -> bool {
    exists(&image.join(STAGED))
}

/// The same of an image whose operation was killed.
pub(crate) fn were_staged(image: &ImagePlace) -> bool {
    let path = match image {
        ImagePlace::Direct(directory) => directory.join(STAGED),
        ImagePlace::Staged(directory) => directory.join(NEW).join(STAGED),
    };
    exists(&path)
}
