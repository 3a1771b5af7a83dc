//! A restore that has found the packs of a store, and the checkpoint that made it, keep it from
//! being removed. The lock is on the directory itself, so it ends with whoever has it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use stasis_memory_store::StoreError;

use crate::host::file_lock::{Lock, Sharing, Tried, try_lock};

/// A store that is not removed as long as this value lives.
#[derive(Debug)]
pub(crate) struct InUse(#[expect(dead_code, reason = "it is locked as long as it lives")] Lock);

/// What became of a store that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    Yes,
    /// Somebody uses it.
    InUse,
}

/// Keeps a store from being removed. `None` if there is none, or it is being removed.
///
/// # Errors
/// The I/O error.
pub(crate) fn hold(directory: &Path) -> io::Result<Option<InUse>> {
    let held = try_lock_opened(open(directory), Sharing::Shared)?;
    // It may have been removed before it was locked.
    let is_still = |held: &File| -> io::Result<bool> {
        let there = fs::symlink_metadata(directory);
        Ok(there.is_ok_and(|there| held.metadata().is_ok_and(|held| held.ino() == there.ino())))
    };
    match held {
        Some(held) if is_still(&held)? => Ok(Some(InUse(Lock::of(held)))),
        _ => Ok(None),
    }
}

/// Removes a store, if nobody uses it. That there is none is no error.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn remove(directory: &Path) -> Result<Removed, StoreError> {
    let locked = try_lock_opened(open(directory), Sharing::Exclusive);
    let locked = locked.map_err(|source| StoreError::Io {
        action: "lock",
        path: directory.to_owned(),
        source,
    })?;
    if locked.is_none() && directory.exists() {
        return Ok(Removed::InUse);
    }
    stasis_memory_store::remove(directory)?;
    Ok(Removed::Yes)
}

fn open(directory: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::empty())?.into())
}

/// Tries to lock an opened directory. `None` if there is no such directory, or somebody else has a
/// lock that excludes this one.
fn try_lock_opened(opened: io::Result<File>, sharing: Sharing) -> io::Result<Option<File>> {
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    Ok(match try_lock(&file, sharing)? {
        Tried::Locked => Some(file),
        Tried::Held => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_memory::origin::tests::origin;
    use crate::bulk_memory::places::tests::store;

    #[test]
    fn what_is_used_is_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = store(parent.path(), 1, &origin("c1", "2026-11-26T10:00:00Z"));
        let users = [(); 2].map(|()| hold(&directory).unwrap().unwrap());
        assert_eq!(remove(&directory).unwrap(), Removed::InUse);
        drop(users);
        assert_eq!(remove(&directory).unwrap(), Removed::Yes);
        assert_eq!(remove(&directory).unwrap(), Removed::Yes, "there is none");
        assert!(!directory.exists() && hold(&directory).unwrap().is_none());
    }
}
