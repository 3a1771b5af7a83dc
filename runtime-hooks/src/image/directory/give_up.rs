//! The image of a checkpoint that failed.

use stasis_linux::{ProcessRef, file};

use super::lock::remove_staging;
use super::staged_contents::forget;
use super::{INVENTORY, NewImage, Place, check_complete};
use crate::image::manifest::Manifest;

impl NewImage {
    /// After a checkpoint that failed: removes what it has written. But if the container has ended,
    /// and CRIU had written all, the image is the last that there is of the container: it stays,
    /// and takes its place.
    pub(crate) fn give_up(&self, init: &ProcessRef) {
        if self.is_last_copy(init) {
            // The next checkpoint or restore in the directory does what is left to do.
            let _ = self.replace_earlier();
            return;
        }
        match &self.place {
            // The directory had none of it before.
            Place::Direct => {
                self.disown();
                let _ = Manifest::remove(&self.directory);
                forget(&self.directory);
                let _ = stasis_memory_store::discard(&self.directory, None);
            }
            Place::Staged { staging, .. } => {
                let _ = remove_staging(staging);
            }
        }
    }

    /// Whether the container has ended, and its image is complete. One of a group has to have the
    /// others' images beside it.
    pub(crate) fn is_last_copy(&self, init: &ProcessRef) -> bool {
        !self.is_in_group() && init.is_gone() && check_complete(self.path()).is_ok()
    }

    /// After a dump whose image lacks processes: neither we nor CRIU alone shall restore it.
    pub(crate) fn disown(&self) {
        let _ = file::remove(&self.path().join(INVENTORY));
    }

    /// After a dump that has taken memory and not given it back: the packs may be all that there is
    /// of it, and stay; but what is there is no image.
    pub(crate) fn keep_memory_only(&self) {
        let _ = file::remove(&self.path().join(INVENTORY));
        let _ = Manifest::remove(self.path());
    }
}
