//! The file system that a directory is on, as a whole.

pub mod detached;
pub mod loop_device;
pub mod mount_attributes;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A file system, by a directory on it.
#[derive(Debug)]
pub struct FileSystem {
    path: PathBuf,
    directory: File,
}

impl FileSystem {
    /// The file system of a directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn of(directory: &Path) -> io::Result<Self> {
        Ok(Self {
            path: directory.to_owned(),
            directory: File::open(directory)?,
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same open file, for another process.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn try_clone(&self) -> io::Result<OwnedFd> {
        self.directory.as_fd().try_clone_to_owned()
    }

    /// Waits until everything that was written to it is on disk: contents and names.
    ///
    /// # Errors
    /// An I/O error; also one of writing anything back since [`FileSystem::of`]: the kernel tells
    /// each open file once of those that came after it was opened (syncfs(2), Linux 5.8).
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.directory)?)
    }
}
