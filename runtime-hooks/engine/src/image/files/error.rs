//! Why a file of an image is not as the manifest lists it.

use std::io;
use std::path::PathBuf;

/// Why a file of an image cannot be listed, or is not as it is listed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FileError {
    /// The file cannot be read; [`io::ErrorKind::InvalidData`] for anything but a regular file.
    #[error("cannot read {path}, a file of the image")]
    Io { path: PathBuf, source: io::Error },
    #[error("the image lacks its file {path}; restore from a whole copy")]
    Missing { path: PathBuf },
    #[error("another image has taken its place in {path} during the restore; restore again")]
    Exchanged { path: PathBuf },
    #[error(
        "{path} has {found} bytes, and had {listed} when the image was made; restore from a whole copy"
    )]
    Length {
        path: PathBuf,
        found: u64,
        listed: u64,
    },
    #[error(
        "the contents of {path} are not those that the image was made with; restore from a whole copy"
    )]
    Contents { path: PathBuf },
    #[error(
        "{path} belongs to user {found}, and the directory of the image to user {owner}: whoever \
         owns a file of it could change it; if that is as it should be, chown the file"
    )]
    Owner {
        path: PathBuf,
        found: u32,
        owner: u32,
    },
}
