//! The lock on the directory in which an image grows.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stasis_linux::file;

use super::{INVENTORY, ImageDirectoryError, failed};
use crate::host::file_lock::{Sharing, Tried, try_lock};

/// A checkpoint whose dump has just ended unlocks the directory sooner than that.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// Makes an empty directory, locked; removes what an interrupted checkpoint has left there.
pub(super) fn make_locked(path: &Path) -> Result<File, ImageDirectoryError> {
    loop {
        if let Some(_lock) = lock(path)? {
            remove_staging(path)?;
        }
        let made = DirBuilder::new().mode(0o700).create(path);
        made.map_err(failed("make", path))?;
        // Another checkpoint may have removed it as the rest of an interrupted one.
        if let Some(lock) = lock(path)? {
            return Ok(lock);
        }
    }
}

pub(super) fn remove_staging(path: &Path) -> Result<(), ImageDirectoryError> {
    // First, so that what is left by a crash here does not look complete.
    let inventory = file::remove(&path.join(INVENTORY));
    let removed = inventory.and_then(|()| fs::remove_dir_all(path));
    removed.map_err(failed("remove", path))
}

/// Locks a directory; `None` if there is none.
pub(super) fn lock(path: &Path) -> Result<Option<File>, ImageDirectoryError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let Some(directory) = open_directory(path).map_err(failed("open", path))? else {
            return Ok(None);
        };
        match try_lock(&directory, Sharing::Exclusive).map_err(failed("lock", path))? {
            Tried::Locked if is_still(&directory, path) => return Ok(Some(directory)),
            // It was moved or removed before it was locked.
            Tried::Locked | Tried::Held if Instant::now() < deadline => sleep(POLL),
            Tried::Locked | Tried::Held => {
                let parent = path.parent().unwrap_or(path);
                return Err(ImageDirectoryError::Busy(parent.to_owned()));
            }
        }
    }
}

/// An image may come from anywhere: only a directory is opened, and no link is followed.
pub(super) fn open_directory(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn is_still(directory: &File, path: &Path) -> bool {
    let there = path.symlink_metadata();
    let ours = directory.metadata();
    matches!((there, ours), (Ok(there), Ok(ours)) if there.ino() == ours.ino())
}
