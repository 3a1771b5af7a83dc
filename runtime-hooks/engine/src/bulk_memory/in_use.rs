//! Keeps a store from being removed by others: a restore that has found its packs and the
//! checkpoint that made it lock the directory itself, so the lock ends with its process.

use std::io;
use std::path::Path;

use stasis_host::directory_lock::{Locked, lock_directory};
use stasis_host::file_lock::{Lock, Sharing};
use stasis_memory_store::StoreError;

/// A store that is not removed as long as this value lives.
#[derive(Debug)]
pub(crate) struct InUse(#[expect(dead_code, reason = "it is locked as long as it lives")] Lock);

/// The result of removing a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It is removed.
    Yes,
    /// A process uses it.
    InUse,
}

/// Keeps a store from being removed. `None` if it does not exist, or is being removed.
pub(crate) fn hold(directory: &Path) -> io::Result<Option<InUse>> {
    Ok(match lock_directory(directory, Sharing::Shared)? {
        Locked::Ours(lock) => Some(InUse(Lock::of(lock))),
        Locked::Held | Locked::Missing => None,
    })
}

/// Removes a store, if no process uses it. A store that does not exist is no error.
pub(crate) fn remove(directory: &Path) -> Result<Removed, StoreError> {
    let locked =
        lock_directory(directory, Sharing::Exclusive).map_err(StoreError::io("lock", directory))?;
    if let Locked::Held = locked {
        return Ok(Removed::InUse);
    }
    stasis_memory_store::remove(directory)?;
    Ok(Removed::Yes)
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
