//! A reader of an image keeps it from being replaced, and from being removed (`stasis gc`): by a
//! lock on the directory itself, which ends with the reader.

use std::fs;
use std::path::Path;

use stasis_host::directory_lock::{Locked, lock_directory};
use stasis_host::file_lock::{Lock, Sharing};
use stasis_linux::file;

use super::{ImageDirectoryError, failed};

/// An image that is not removed as long as this value lives. Without a file it is in a directory
/// that cannot be locked, from which no process removes an image either.
#[derive(Debug)]
pub struct InUse(#[expect(dead_code, reason = "locked as long as it lives")] Option<Lock>);

/// An image that no other process uses as long as this value lives.
#[derive(Debug)]
pub struct Alone(#[expect(dead_code, reason = "locked as long as it lives")] Lock);

/// Keeps the image in a directory from being removed. This needs no right to write: its next reader
/// reports a directory that cannot be opened or locked.
///
/// # Errors
/// [`ImageDirectoryError::Removed`]: it is being removed.
pub fn hold(directory: &Path) -> Result<InUse, ImageDirectoryError> {
    // The caller may name the directory by a link.
    let locked =
        fs::canonicalize(directory).and_then(|path| lock_directory(&path, Sharing::Shared));
    match locked {
        Ok(Locked::Ours(lock)) => Ok(InUse(Some(Lock::of(lock)))),
        Ok(Locked::Held) => Err(ImageDirectoryError::Removed(directory.to_owned())),
        Ok(Locked::Missing) | Err(_) => Ok(InUse(None)),
    }
}

/// Keeps all others from using the image in a directory; `None` if another process does.
///
/// # Errors
/// [`ImageDirectoryError::Io`], also for a directory that cannot be locked.
pub fn hold_alone(directory: &Path) -> Result<Option<Alone>, ImageDirectoryError> {
    let path = file::if_exists(fs::canonicalize(directory));
    let Some(path) = path.map_err(failed("lock", directory))? else {
        return Ok(None);
    };
    let locked = lock_directory(&path, Sharing::Exclusive);
    Ok(match locked.map_err(failed("lock", directory))? {
        Locked::Ours(lock) => Some(Alone(Lock::of(lock))),
        Locked::Held | Locked::Missing => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn who_uses_an_image_keeps_it_from_whoever_removes_it() {
        let parent = tempfile::tempdir().unwrap();
        let (image, link) = (parent.path().join("image"), parent.path().join("link"));
        std::fs::create_dir(&image).unwrap();
        symlink(&image, &link).unwrap();
        let users = [&image, &link].map(|path| hold(path).unwrap());
        assert!(hold_alone(&image).unwrap().is_none());
        let [first, by_link] = users;
        drop(first);
        assert!(hold_alone(&image).unwrap().is_none());
        drop(by_link);
        let alone = hold_alone(&image).unwrap().unwrap();
        assert!(matches!(hold(&link), Err(ImageDirectoryError::Removed(_))));
        drop(alone);
        let alone = hold_alone(&link).unwrap().unwrap();
        assert!(matches!(hold(&image), Err(ImageDirectoryError::Removed(_))));
        drop(alone);
        hold(&image).unwrap();
    }

    #[test]
    fn what_is_not_there_is_for_its_reader_to_report() {
        let parent = tempfile::tempdir().unwrap();
        hold(&parent.path().join("none")).unwrap();
        assert!(hold_alone(&parent.path().join("none")).unwrap().is_none());
    }
}
