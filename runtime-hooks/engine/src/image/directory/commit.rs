//! Makes a new image the image of its directory, in one step.

use std::io;
use std::path::{Path, PathBuf};

use stasis_linux::ProcessRef;
use stasis_linux::file_system::FileSystem;

use super::lock::remove_staging;
use super::move_up::{move_up_soon, rename};
use super::whole::doubt;
use super::{COMPLETE, ImageDirectoryError, NewImage, has_inventory};

/// The error of work behind the commit, which can wait: why the image is not moved up yet.
#[derive(Debug)]
#[must_use]
pub(crate) struct Committed(pub(crate) Option<ImageDirectoryError>);

impl NewImage {
    /// Brings the image to disk, beside its contents apart from it in `store`, and commits it,
    /// unless another process decides that.
    ///
    /// # Errors
    /// [`ImageDirectoryError`]: the earlier image is as it was, and is what a restore gets.
    pub(crate) fn commit(
        &self,
        store: Option<&FileSystem>,
        sync: impl Fn(&FileSystem) -> io::Result<()>,
    ) -> Result<Committed, ImageDirectoryError> {
        if !has_inventory(&self.staging) {
            return Err(ImageDirectoryError::Incomplete(self.staging.clone()));
        }
        for system in store.into_iter().chain([&self.file_system]) {
            sync(system).map_err(|source| {
                self.doubt();
                ImageDirectoryError::NotOnDisk {
                    path: system.path().to_owned(),
                    source,
                }
            })?;
        }
        match self.shares_outcome() {
            false => self.take_its_place(),
            true => Ok(Committed(None)),
        }
    }

    /// Commits the image.
    pub(crate) fn take_its_place(&self) -> Result<Committed, ImageDirectoryError> {
        match rename(&self.staging, &self.directory.join(COMPLETE)) {
            // The rename is done, and the file server's answer was lost (rename(2), "Bugs"): the
            // lock keeps all others from moving it.
            Err(_) if is_gone(&self.staging) => {}
            renamed => renamed?,
        }
        Ok(Committed(move_up_soon(&self.directory).err()))
    }

    /// Removes the image, after a checkpoint that failed before the commit. The image of a
    /// container which has ended is the last copy, and stays, where this returns: in its place if
    /// the directory has no other image, else in [`Self::path`] until a reader has found it whole.
    pub fn give_up(&self, init: &ProcessRef) -> Option<PathBuf> {
        if !self.is_last_copy(init) {
            let _ = remove_staging(&self.staging);
            return None;
        }
        if !has_inventory(&self.directory) && self.take_its_place().is_ok() {
            return Some(self.directory.clone());
        }
        Some(self.staging.clone())
    }

    /// Has it count as whole only if all of its files are as they were sealed.
    pub(crate) fn doubt(&self) {
        doubt(&self.staging);
    }

    /// Whether CRIU has written all of it, and its container has ended. An image whose outcome
    /// is shared is no last copy before the decision.
    pub(crate) fn is_last_copy(&self, init: &ProcessRef) -> bool {
        !self.shares_outcome() && init.is_gone() && has_inventory(&self.staging)
    }

    /// Makes it never whole; its packs stay, of which processes lack the contents.
    pub fn disown(&self) {
        super::disown(&self.directory);
    }
}

/// Whether nothing exists there, by the answer of the file system.
fn is_gone(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
