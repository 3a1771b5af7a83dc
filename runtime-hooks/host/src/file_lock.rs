//! Locks on open files (flock(2)), which end with their holders, however these end.
//!
//! A lock belongs to the open file: a process that inherits or receives the descriptor has it as
//! well. A lock that another process has is no error but a result, and only [`lock`] waits for it
//! without a deadline.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use stasis_linux::file;

/// The most time for a lock that its holders need for a moment only.
pub const MOMENT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// The other processes that may have a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// None.
    Exclusive,
    /// Others that share it.
    Shared,
}

/// A lock that ends with this value. Closing its file would not suffice: a child that another
/// thread starts has it open as well, until its execve(2).
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock that an open file has, if it has one. No other holder may get the file.
    pub fn of(file: File) -> Self {
        Self(file)
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = unlock(&self.0);
    }
}

/// Result of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Tried {
    /// We have the lock.
    Locked,
    /// Another process has the lock, in a way that excludes us.
    Held,
}

/// Tries to take a lock, without waiting.
///
/// # Errors
/// An error of flock(2) other than that another process has the lock.
pub fn try_lock(file: impl AsFd, sharing: Sharing) -> io::Result<Tried> {
    let operation = match sharing {
        Sharing::Exclusive => FlockOperation::NonBlockingLockExclusive,
        Sharing::Shared => FlockOperation::NonBlockingLockShared,
    };
    match retry_on_intr(|| flock(&file, operation)) {
        Ok(()) => Ok(Tried::Locked),
        Err(Errno::WOULDBLOCK) => Ok(Tried::Held),
        Err(error) => Err(error.into()),
    }
}

/// Whether another process has a lock on a file that excludes one of this kind. A lock that is free
/// is taken for a moment.
///
/// # Errors
/// As [`try_lock`], or an error of opening the file; its absence is none.
pub fn is_held(path: &Path, sharing: Sharing) -> io::Result<bool> {
    match file::if_exists(File::open(path))? {
        None => Ok(false),
        Some(file) => Ok(try_lock(file, sharing)? == Tried::Held),
    }
}

/// Takes a lock that others have for no longer than `limit`: a longer holder is stopped, or waits
/// for a disk.
///
/// # Errors
/// As [`try_lock`], or [`io::ErrorKind::WouldBlock`] after `limit`.
pub fn lock_within(limit: Duration, file: impl AsFd, sharing: Sharing) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        match try_lock(&file, sharing)? {
            Tried::Locked => return Ok(()),
            Tried::Held if Instant::now() < deadline => sleep(POLL),
            Tried::Held => return Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Takes an exclusive lock that others need for a moment only.
///
/// # Errors
/// As [`lock_within`], after 5 s.
pub fn lock_soon(file: impl AsFd) -> io::Result<()> {
    lock_within(MOMENT, file, Sharing::Exclusive)
}

/// Takes an exclusive lock, however long others have it.
pub fn lock(file: impl AsFd) -> io::Result<()> {
    Ok(retry_on_intr(|| {
        flock(&file, FlockOperation::LockExclusive)
    })?)
}

/// Releases a lock, for all holders of this open file.
pub fn unlock(file: impl AsFd) -> io::Result<()> {
    Ok(flock(file, FlockOperation::Unlock)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_has_is_held() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [(); 2].map(|()| File::open(path.path()).unwrap());
        assert_eq!(try_lock(&first, Sharing::Shared).unwrap(), Tried::Locked);
        assert_eq!(try_lock(&second, Sharing::Shared).unwrap(), Tried::Locked);
        assert_eq!(try_lock(&second, Sharing::Exclusive).unwrap(), Tried::Held);
        unlock(&first).unwrap();
        assert_eq!(
            try_lock(&second, Sharing::Exclusive).unwrap(),
            Tried::Locked
        );
        assert_eq!(try_lock(&first, Sharing::Shared).unwrap(), Tried::Held);
    }

    #[test]
    fn a_lock_that_somebody_keeps_is_an_error() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [(); 2].map(|()| File::open(path.path()).unwrap());
        lock_soon(&first).unwrap();
        let error = lock_within(Duration::ZERO, &second, Sharing::Exclusive).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        // A child that another test has just started may have it open for a moment.
        lock_soon(&second).unwrap();
    }

    #[test]
    fn a_lock_ends_with_its_value_whoever_has_the_file_open() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [(); 2].map(|()| File::open(path.path()).unwrap());
        lock_soon(&first).unwrap();
        // As a child that is being started has it.
        let childs = first.try_clone().unwrap();
        let lock = Lock::of(first);
        assert_eq!(try_lock(&second, Sharing::Shared).unwrap(), Tried::Held);
        drop(lock);
        assert_eq!(try_lock(&second, Sharing::Shared).unwrap(), Tried::Locked);
        drop(childs);
    }
}
