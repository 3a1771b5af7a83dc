//! The lock of whoever writes an image, on the directory that it is written into.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stasis_linux::file;

use super::step::{PATIENCE, pause, step};
use super::{INVENTORY, ImageDirectoryError, failed};
use crate::host::file_lock::{Sharing, Tried, try_lock};

/// Locks what a writer has left. `None` if there is nothing.
///
/// # Errors
/// [`ImageDirectoryError::Busy`] if somebody else has the lock for longer than a moment.
pub(super) fn lock(staging: &Path) -> Result<Option<File>, ImageDirectoryError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match lock_now(staging)? {
            Locked::Ours(lock) => return Ok(Some(lock)),
            Locked::Nothing => return Ok(None),
            Locked::Held if Instant::now() < deadline => pause(),
            Locked::Held => {
                let directory = staging.parent().unwrap_or(staging);
                return Err(ImageDirectoryError::Busy(directory.to_owned()));
            }
        }
    }
}

/// What has come of a try to lock what a writer has left.
pub(super) enum Locked {
    Ours(File),
    /// Its writer is at work.
    Held,
    /// There is nothing.
    Nothing,
}

/// The same without waiting.
///
/// # Errors
/// [`ImageDirectoryError::Io`].
pub(super) fn lock_now(staging: &Path) -> Result<Locked, ImageDirectoryError> {
    loop {
        step();
        let Some(directory) = open_directory(staging).map_err(failed("open", staging))? else {
            return Ok(Locked::Nothing);
        };
        match try_lock(&directory, Sharing::Exclusive).map_err(failed("lock", staging))? {
            Tried::Locked if is_still(&directory, staging) => return Ok(Locked::Ours(directory)),
            // It was committed, or removed, meanwhile.
            Tried::Locked => {}
            Tried::Held => return Ok(Locked::Held),
        }
    }
}

/// Removes what was written of an image, the inventory first: what is left of it is never whole.
///
/// # Errors
/// [`ImageDirectoryError::Io`].
pub(super) fn remove_staging(path: &Path) -> Result<(), ImageDirectoryError> {
    step();
    let inventory = file::remove(&path.join(INVENTORY));
    step();
    let removed = inventory.and_then(|()| match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    });
    removed.map_err(failed("remove", path))
}

/// Opens a directory that may be locked. `None` if there is none.
pub(super) fn open_directory(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the directory is still at this path, after it was locked.
pub(super) fn is_still(directory: &File, path: &Path) -> bool {
    let there = path.symlink_metadata();
    let ours = directory.metadata();
    matches!((there, ours), (Ok(there), Ok(ours)) if there.ino() == ours.ino())
}
