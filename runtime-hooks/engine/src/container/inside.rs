//! Reads files of a container's file system, whose contents the container controls.
//!
//! Instead of a plain file the container may place a link that leaves its root, a device that acts
//! when it is opened (`/dev/watchdog` reboots the machine when it is closed again), a fifo without
//! a writer, or a file of a FUSE mount that never answers.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags, open, openat2};
use stasis_linux::ProcessRef;
use stasis_linux::file::open_found;

/// The root directory of a process.
///
/// # Errors
/// The error of open(2); also if the process has ended.
pub(crate) fn root_of(process: &ProcessRef) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = format!("/proc/{}/root", process.pid());
    let root = open(path, flags, Mode::empty())?;
    // Checked after open(2), since the pid may have been given to another process before it.
    if process.is_gone() {
        return Err(io::Error::other(format!("{process} has ended")));
    }
    Ok(root)
}

/// Reads the first `limit` bytes of a regular file in the file system mounted at `root`. Opens
/// nothing else, and enters no other mount.
///
/// # Errors
/// The error of openat2(2) or read(2); EXDEV for a file on another mount.
pub(crate) fn read_file(root: impl AsFd, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // O_PATH finds a file without opening it, so no device driver acts.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let found = openat2(root, path, flags, Mode::empty(), resolve)?;
    let not_a_file = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    let file = open_found(&found)?.ok_or_else(not_a_file)?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names in a directory of the file system mounted at `root`, whatever is mounted there.
///
/// # Errors
/// The error of openat2(2) or getdents(2).
pub(crate) fn names_in(root: impl AsFd, path: &Path) -> io::Result<Vec<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A link leads to what is in the container, as for the container itself.
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let directory = openat2(root, path, flags, Mode::empty(), resolve)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
