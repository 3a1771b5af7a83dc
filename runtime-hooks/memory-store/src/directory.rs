//! Directories with packs: lists and removes them.

use std::fs::{self, DirBuilder, DirEntry};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use stasis_linux::directory::Directory;
use stasis_linux::file;

use crate::{INDEX_FILE, ImageId, ORIGIN_FILE, STORE_INDEX_FILE, StoreError, pack};

/// A directory of a store: the memory of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The checkpoint.
    pub image_id: ImageId,
    /// The directory.
    pub directory: PathBuf,
    /// Bytes that its files occupy.
    pub bytes: u64,
    /// Whether it has an index; a dump that was cut off leaves none.
    pub complete: bool,
}

/// Lists the checkpoints of a store, in the order of their ids; nothing without such a directory.
pub fn list(store: &Path) -> Result<Vec<Stored>, StoreError> {
    let mut found = Vec::new();
    for entry in entries(store)? {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if let Some(image_id) = id.filter(|_| is_directory) {
            found.extend(stored(image_id, entry.path())?);
        }
    }
    found.sort_by_key(|stored| stored.image_id);
    Ok(found)
}

/// Describes a directory; `None`: it has been removed meanwhile.
fn stored(image_id: ImageId, directory: PathBuf) -> Result<Option<Stored>, StoreError> {
    if fs::symlink_metadata(&directory).is_err() {
        return Ok(None);
    }
    let mut stored = Stored {
        image_id,
        bytes: 0,
        complete: false,
        directory,
    };
    for entry in entries(&stored.directory)? {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        // `st_blocks` counts 512 bytes on every file system.
        stored.bytes += metadata.blocks() * 512;
        stored.complete |= entry.file_name() == STORE_INDEX_FILE;
    }
    Ok(Some(stored))
}

/// Makes a directory of a store, which only root may enter. An existing one is no error, unless it
/// is complete: the process that has chosen its random name has begun with it.
pub(crate) fn make(directory: &Path) -> Result<(), StoreError> {
    let is_begun = || !directory.join(STORE_INDEX_FILE).exists();
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_begun() => {
            let ours = Directory::make(directory, 0o700).map(drop);
            ours.map_err(StoreError::writing(directory))
        }
        made => made.map_err(StoreError::writing(directory)),
    }
}

/// Removes a directory of a store. A missing one is no error.
///
/// # Errors
/// [`StoreError::Io`]; also if the directory has a file that the store did not make, which is kept.
pub fn remove(directory: &Path) -> Result<(), StoreError> {
    let failed = StoreError::io("remove", directory);
    match file::if_exists(fs::symlink_metadata(directory))
        .map_err(StoreError::io("remove", directory))?
    {
        None => return Ok(()),
        Some(metadata) if metadata.is_dir() => {}
        Some(_) => return Err(failed(io::ErrorKind::NotADirectory.into())),
    }
    // Without its origin an interrupted removal does not look like a complete store.
    remove_replaced(&directory.join(ORIGIN_FILE))?;
    clear(directory, STORE_INDEX_FILE)?;
    fs::remove_dir(directory).map_err(failed)
}

/// Removes the memory of a checkpoint that failed: its files in the image directory, and its
/// directory in a store, even if the image's cannot be removed: no other process would find it.
pub fn discard(image_dir: &Path, directory: Option<&Path>) -> Result<(), StoreError> {
    let cleared = clear(image_dir, INDEX_FILE);
    cleared.and(directory.map_or(Ok(()), remove))
}

/// Removes the index of this name and the packs from a directory, and nothing else.
pub(crate) fn clear(directory: &Path, index: &str) -> Result<(), StoreError> {
    // First, so that a crash here does not leave a store that looks whole.
    remove_replaced(&directory.join(index))?;
    clear_packs(directory)
}

/// Removes the packs from a directory, and the files beside them, and nothing else.
pub(crate) fn clear_packs(directory: &Path) -> Result<(), StoreError> {
    for entry in entries(directory)? {
        if entry.file_name().to_str().is_some_and(pack::is_of_pack) {
            remove_file(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file that is replaced as a whole, and the leftovers of a cut-off replacement.
fn remove_replaced(path: &Path) -> Result<(), StoreError> {
    remove_file(path)?;
    remove_file(&file::staged(path).map_err(StoreError::io("remove", path))?)
}

/// Removes a file; a missing one is no error.
pub(crate) fn remove_file(path: &Path) -> Result<(), StoreError> {
    file::remove(path).map_err(StoreError::io("remove", path))
}

/// Lists a directory; nothing if it does not exist.
pub(crate) fn entries(directory: &Path) -> Result<Vec<DirEntry>, StoreError> {
    let entries = file::entries(directory).and_then(Iterator::collect);
    entries.map_err(StoreError::io("read", directory))
}

#[cfg(test)]
mod tests;
