//! Whether a file system has room for the files that a checkpoint is about to write.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

/// A file system has too little room.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} is on a file system with {} MiB free, and up to {} MiB are to be written there; make \
     room, put it elsewhere, or set preflight.disk_space = \"ignore\" in the settings if most of \
     that memory is known to be zeros",
    .free >> 20, .needed.div_ceil(1 << 20)
)]
pub struct NoDiskSpace {
    /// The directory.
    path: PathBuf,
    /// Bytes needed at most.
    needed: u64,
    /// Bytes free.
    free: u64,
}

/// Refuses `needed` bytes if the file system of a directory, which need not exist yet, has no room
/// for them. A file system that does not tell its size (statvfs(3) with no blocks) has room.
///
/// # Errors
/// [`NoDiskSpace`], with both figures.
pub(crate) fn admit(directory: &Path, needed: u64) -> Result<(), NoDiskSpace> {
    match free(directory) {
        Ok(Some(free)) if free < needed => Err(NoDiskSpace {
            path: directory.to_owned(),
            needed,
            free,
        }),
        // If the file system cannot be asked, writing shows it.
        _ => Ok(()),
    }
}

/// Returns the bytes that are free where a directory is or will be; `None` if its file system does
/// not tell its size.
///
/// # Errors
/// The error of statvfs(3).
pub fn free(directory: &Path) -> io::Result<Option<u64>> {
    let now = statvfs(&existing(directory)?)?;
    Ok((now.f_blocks > 0).then(|| now.f_bavail.saturating_mul(now.f_frsize)))
}

/// Returns whether a directory is, or will be, on a tmpfs; false if that cannot be found out.
pub(crate) fn is_in_memory(directory: &Path) -> bool {
    let opened = existing(directory).and_then(File::open);
    opened.is_ok_and(stasis_memory_store::is_in_memory)
}

/// The directory, or the nearest one above it that exists.
fn existing(directory: &Path) -> io::Result<PathBuf> {
    let directory = std::path::absolute(directory)?;
    let there = directory.ancestors().find(|path| path.exists());
    Ok(there.unwrap_or(Path::new("/")).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_room_is_refused_with_both_figures() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("not/there/yet");
        admit(&image, 1).unwrap();
        let error = admit(&image, u64::MAX).unwrap_err().to_string();
        assert!(
            error.contains("not/there/yet is on a file system with"),
            "{error}"
        );
        assert!(error.contains("up to 17592186044416 MiB"), "{error}");
    }

    #[test]
    fn one_that_does_not_tell_refuses_nothing() {
        // proc has no blocks.
        admit(Path::new("/proc/self"), u64::MAX).unwrap();
    }
}
