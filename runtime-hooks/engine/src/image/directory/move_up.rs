//! Moves the files of a committed image up into its directory.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use stasis_linux::file;

use super::in_use::hold_alone;
use super::step::{PATIENCE, change, pause, step};
use super::{
    BOOT, COMPLETE, INVENTORY, ImageDirectoryError, MOVING, PARENT, SHARED, exists, failed,
    has_inventory, removal,
};
use crate::image::files::FileError;

/// Moves a committed image up, once no process reads in the directory.
///
/// # Errors
/// [`ImageDirectoryError::Read`] if a process reads for longer than a moment. After any error the
/// committed image is whole, and the next process that opens the directory goes on.
pub(super) fn move_up_soon(directory: &Path) -> Result<(), ImageDirectoryError> {
    let deadline = Instant::now() + PATIENCE;
    while is_committed(directory)? {
        step();
        match hold_alone(directory)? {
            Some(_alone) => move_up(directory)?,
            None if Instant::now() < deadline => pause(),
            None => return Err(ImageDirectoryError::Read(directory.to_owned())),
        }
    }
    Ok(())
}

/// Whether an image waits to be moved up.
///
/// # Errors
/// [`ImageDirectoryError::Io`], also for anything but directories of these names: an image from
/// elsewhere may have links.
pub(super) fn is_committed(directory: &Path) -> Result<bool, ImageDirectoryError> {
    let mut is_committed = false;
    for path in [COMPLETE, MOVING].map(|name| directory.join(name)) {
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => is_committed = true,
            Ok(_) => return Err(failed("open", &path)(io::ErrorKind::NotADirectory.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("open", &path)(error)),
        }
    }
    Ok(is_committed)
}

/// Moves a committed image up; the caller is alone in the directory. Each step can be repeated from
/// where it was cut off.
///
/// # Errors
/// [`ImageDirectoryError::Io`]; [`FileError::Missing`] if it is no image, and nothing is changed.
pub(super) fn move_up(directory: &Path) -> Result<(), ImageDirectoryError> {
    let (complete, moving) = (directory.join(COMPLETE), directory.join(MOVING));
    step();
    if !is_committed(directory)? {
        return Ok(());
    }
    if exists(&complete) {
        if !has_inventory(&complete) {
            let path = complete.join(INVENTORY);
            return Err(FileError::Missing { path }.into());
        }
        if has_inventory(directory) {
            // The rename that commits is on disk before anything of the earlier image goes.
            change(|| file::sync_directory(directory)).map_err(failed("write", directory))?;
        }
        removal::clear(directory)?;
        rename(&complete, &moving)?;
    }
    let io = |action| failed(action, &moving);
    for sign in [BOOT, SHARED] {
        change(|| file::remove(&moving.join(sign))).map_err(io("write"))?;
    }
    for entry in fs::read_dir(&moving).map_err(io("read"))? {
        let entry = entry.map_err(io("read"))?;
        if entry.file_name() != INVENTORY {
            move_one(&entry.path(), directory)?;
        }
    }
    if exists(&moving.join(INVENTORY)) {
        rename(&moving.join(INVENTORY), &directory.join(INVENTORY))?;
    }
    change(|| fs::remove_dir(&moving)).map_err(io("remove"))?;
    change(|| file::sync_directory(directory)).map_err(failed("write", directory))
}

/// Moves one file up; CRIU's link to an earlier image leads one directory less far up from there.
fn move_one(path: &Path, directory: &Path) -> Result<(), ImageDirectoryError> {
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let to = directory.join(name);
    if name != PARENT {
        return rename(path, &to);
    }
    let link = || {
        let target = fs::read_link(path)?;
        change(|| file::remove(&to))?;
        change(|| symlink(target.strip_prefix("..").unwrap_or(&target), &to))?;
        change(|| fs::remove_file(path))
    };
    link().map_err(failed("move", path))
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), ImageDirectoryError> {
    change(|| fs::rename(from, to)).map_err(failed("move", from))
}
