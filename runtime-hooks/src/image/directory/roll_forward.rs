//! Putting a complete image into the place of the earlier one, step by step, each of which can be
//! cut off and done again.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use stasis_linux::file;
use stasis_linux::file_system::FileSystem;

use super::lock::lock;
use super::{
    BOOT, COMPLETE, GROUP, INVENTORY, ImageDirectoryError, MAX_BOOT_BYTES, NEW, PARENT,
    check_complete, exists, failed, is_of_this_boot,
};
use crate::image::manifest::Manifest;
use crate::operation::group;

/// Finishes an interrupted replacement: a complete image that was left beside the earlier one takes
/// its place, so that the directory holds one whole image.
///
/// # Errors
/// [`ImageDirectoryError`].
pub(crate) fn settle(directory: &Path) -> Result<(), ImageDirectoryError> {
    let (new, complete) = (directory.join(NEW), directory.join(COMPLETE));
    if let Some(_lock) = lock(&new)?
        && takes_its_place(&new).map_err(failed("read", &new))?
    {
        // Whoever began it may not have come so far.
        let synced = FileSystem::of(&new).and_then(|system| system.sync());
        synced.map_err(failed("write", &new))?;
        rename(&new, &complete)?;
    }
    match lock(&complete)? {
        Some(_lock) => roll_forward(directory),
        None => Ok(()),
    }
}

/// Whether [`settle`] has nothing to do: an image that is being written counts as nothing.
pub(crate) fn is_settled(directory: &Path) -> bool {
    let waits = takes_its_place(&directory.join(NEW));
    matches!(waits, Ok(false)) && !exists(&directory.join(COMPLETE))
}

/// Whether a new image is complete and was begun in this boot: it takes the earlier one's place.
/// One of a group does so only if all of them are complete, on disk, which is decided elsewhere.
pub(super) fn takes_its_place(new: &Path) -> io::Result<bool> {
    if check_complete(new).is_err() {
        return Ok(false);
    }
    let Some(group) = file::read(&new.join(GROUP), MAX_BOOT_BYTES)? else {
        return is_of_this_boot(new);
    };
    let images = new.parent().and_then(Path::parent).unwrap_or(new);
    group::is_complete(images, &String::from_utf8_lossy(&group))
}

/// Moves the complete image up. The directory always has an `inventory.img`: callers look for one.
pub(super) fn roll_forward(directory: &Path) -> Result<(), ImageDirectoryError> {
    let complete = directory.join(COMPLETE);
    let inventory = complete.join(INVENTORY);
    if exists(&inventory) {
        Manifest::remove(directory)?;
        stasis_memory_store::discard(directory, None)?;
        rename(&inventory, &directory.join(INVENTORY))?;
    }
    let io = |action| failed(action, &complete);
    for sign in [BOOT, GROUP] {
        file::remove(&complete.join(sign)).map_err(io("write"))?;
    }
    for entry in fs::read_dir(&complete).map_err(io("read"))? {
        move_up(&entry.map_err(io("read"))?.path(), directory)?;
    }
    fs::remove_dir(&complete).map_err(io("remove"))?;
    file::sync_directory(directory).map_err(failed("write", directory))
}

fn move_up(path: &Path, directory: &Path) -> Result<(), ImageDirectoryError> {
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let to = directory.join(name);
    if name != PARENT {
        return rename(path, &to);
    }
    let link = || {
        let target = fs::read_link(path)?;
        file::remove(&to)?;
        // As the caller gave it.
        symlink(target.strip_prefix("..").unwrap_or(&target), &to)?;
        fs::remove_file(path)
    };
    link().map_err(failed("move", path))
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), ImageDirectoryError> {
    fs::rename(from, to).map_err(failed("move", from))
}
