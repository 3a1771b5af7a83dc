//! The lock of a writer of an image, on the directory that it writes into.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use stasis_host::directory_lock::{Locked, lock_directory};
use stasis_host::file_lock::Sharing;
use stasis_linux::file;

use super::step::{PATIENCE, change, pause};
use super::{INVENTORY, ImageDirectoryError, failed};

/// Locks the directory that a writer has left. `None` if there is none.
///
/// # Errors
/// [`ImageDirectoryError::Busy`] if another process has the lock for longer than a moment.
pub(super) fn lock(staging: &Path) -> Result<Option<File>, ImageDirectoryError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match lock_now(staging)? {
            Locked::Ours(lock) => return Ok(Some(lock)),
            Locked::Missing => return Ok(None),
            Locked::Held if Instant::now() < deadline => pause(),
            Locked::Held => {
                let directory = staging.parent().unwrap_or(staging);
                return Err(ImageDirectoryError::Busy(directory.to_owned()));
            }
        }
    }
}

/// Tries the same without waiting.
pub(super) fn lock_now(staging: &Path) -> Result<Locked, ImageDirectoryError> {
    change(|| lock_directory(staging, Sharing::Exclusive)).map_err(failed("lock", staging))
}

/// Removes the written part of an image, the inventory first: the rest is never whole.
pub(super) fn remove_staging(path: &Path) -> Result<(), ImageDirectoryError> {
    let inventory = change(|| file::remove(&path.join(INVENTORY)));
    let all = || file::if_exists(change(|| fs::remove_dir_all(path))).map(drop);
    inventory
        .and_then(|()| all())
        .map_err(failed("remove", path))
}
