//! Locks on directories (flock(2)): a lock shows that the directory is still at its path.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stasis_linux::file;

use crate::file_lock::{Sharing, Tried, try_lock};

/// Result of a try.
#[derive(Debug)]
#[must_use]
pub enum Locked {
    /// The lock ends once no process has this file open any more.
    Ours(File),
    /// Another process has the lock, in a way that excludes us.
    Held,
    /// There is no such directory.
    Missing,
}

/// Tries to lock a directory; a link to one is an error.
pub fn lock_directory(path: &Path, sharing: Sharing) -> io::Result<Locked> {
    loop {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory: File = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory.into(),
            Err(Errno::NOENT) => return Ok(Locked::Missing),
            Err(error) => return Err(error.into()),
        };
        match try_lock(&directory, sharing)? {
            Tried::Locked if file::is_at(&directory, path) => {
                return Ok(Locked::Ours(directory));
            }
            // The directory was moved, or removed, meanwhile.
            Tried::Locked => {}
            Tried::Held => return Ok(Locked::Held),
        }
    }
}
