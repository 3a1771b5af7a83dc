//! The directories of GPU contents that lie apart from their images: one for each image, named by
//! its id.

use std::io;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_linux::directory::Directory;
use stasis_memory_store::{ImageId, STORE_INDEX_FILE, StoreError, Stored, is_in_memory};

use crate::bulk_memory::in_use::{self, Removed};
use crate::bulk_memory::origin::Origin;

/// Where the settings put contents.
#[derive(Debug, Clone)]
pub struct Places {
    /// Apart from images; `None`: contents lie in their images.
    pub apart: Option<PathBuf>,
    /// A tmpfs of ours, for contents on their way to a disk. It may not exist.
    pub staging: PathBuf,
}

/// Contents of one image, and their origin if known.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) stored: Stored,
    pub(crate) origin: Option<Origin>,
}

impl Places {
    /// The directories that the settings name.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            apart: settings.gpu_contents.directory().map(Path::to_owned),
            staging: settings.paths.state_dir.join("staging"),
        }
    }

    /// Whether the contents of an image lie apart from it.
    pub fn has(&self, id: ImageId) -> bool {
        let index = self
            .apart
            .as_deref()
            .map(|apart| of_image(apart, id).join(STORE_INDEX_FILE));
        index.is_some_and(|index| index.exists())
    }

    /// Removes the contents of an image that lie apart from it, if no process uses them. Missing
    /// contents are no error.
    pub fn remove(&self, id: ImageId) -> Result<Removed, StoreError> {
        match &self.apart {
            None => Ok(Removed::Yes),
            Some(apart) => in_use::remove(&of_image(apart, id)),
        }
    }
}

/// The contents of an image below `parent`.
pub fn of_image(parent: &Path, id: ImageId) -> PathBuf {
    parent.join(id.to_string())
}

/// Creates a directory for contents, which only root may read, or opens an existing one.
pub(crate) fn prepare(directory: &Path) -> io::Result<Directory> {
    Directory::make(directory, 0o700)
}

/// Returns whether a directory for contents is on a tmpfs: then the driver's file is the pack, and
/// restores map it. A directory that cannot be opened is not.
pub(crate) fn in_memory(directory: &Path) -> bool {
    prepare(directory).is_ok_and(|directory| is_in_memory(directory.file()))
}

/// All contents in `parent`, in the order of their checkpoints.
pub(crate) fn all_in(parent: &Path) -> Result<Vec<Store>, StoreError> {
    let stored = stasis_memory_store::list(parent)?.into_iter();
    let mut stores: Vec<Store> = stored
        .map(|stored| Store {
            origin: Origin::read(&stored.directory),
            stored,
        })
        .collect();
    stores.sort_by_cached_key(|store| {
        let origin = store.origin.as_ref();
        (
            origin.is_none(),
            origin.map(|origin| origin.created.clone()),
        )
    });
    Ok(stores)
}

#[cfg(test)]
pub(crate) mod tests;
