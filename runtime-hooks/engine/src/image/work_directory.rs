//! The files that CRIU and runc write beside an image, by their paths and as root.
//!
//! CRIU follows a link in the place of its log and empties the file behind it, and waits for the
//! reader of a fifo (seen with CRIU 4.2). An image that others have made may bring such files,
//! since its directory is the work directory unless the caller names another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Something else than a file is where a file is written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WorkDirectoryError {
    /// A link, a fifo, a device or a directory.
    #[error(
        "{0} is no regular file, and CRIU would write to whatever that is or leads to, as root; \
         remove it, or have CRIU use another directory (--work-path)"
    )]
    NoFile(PathBuf),
    #[error("cannot look at {path}, which CRIU would write")]
    Io { path: PathBuf, source: io::Error },
}

/// Checks the files that a dump writes: in CRIU's work directory, and runc into the image.
pub(crate) fn check_for_dump(work: &Path, image: &Path) -> Result<(), WorkDirectoryError> {
    check(work, &["dump.log", "stats-dump"])?;
    check(image, &["descriptors.json"])
}

/// Checks the files that a restore writes into CRIU's work directory.
pub(crate) fn check_for_restore(work: &Path) -> Result<(), WorkDirectoryError> {
    check(work, &["restore.log", "stats-restore"])
}

fn check(directory: &Path, names: &[&str]) -> Result<(), WorkDirectoryError> {
    for name in names {
        let path = directory.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(WorkDirectoryError::NoFile(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(WorkDirectoryError::Io { path, source }),
        }
    }
    Ok(())
}
