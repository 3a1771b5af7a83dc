//! Why a file of an image is not as the manifest lists it.

use std::io;
use std::path::PathBuf;

/// Why a file of an image cannot be listed, or is not as it is listed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read; [`io::ErrorKind::InvalidData`] for anything but a regular file.
    #[error("cannot read {path}, a file of the image")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The file is missing.
    #[error("the image lacks its file {path}; restore from a whole copy")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another image is there now.
    #[error("another image has taken its place in {path} during the restore; restore again")]
    Exchanged {
        /// The directory.
        path: PathBuf,
    },
    /// The file is shorter or longer.
    #[error(
        "{path} has {found} bytes, and had {listed} when the image was made; restore from a whole copy"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length now.
        found: u64,
        /// Its length in the manifest.
        listed: u64,
    },
    /// The file has other contents.
    #[error(
        "the contents of {path} are not those that the image was made with; restore from a whole copy"
    )]
    Contents {
        /// The file.
        path: PathBuf,
    },
    /// Another user could change the file.
    #[error(
        "{path} belongs to user {found}, and the directory of the image to user {owner}: whoever \
         owns a file of it could change it; if that is as it should be, chown the file"
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        found: u32,
        /// The directory's owner.
        owner: u32,
    },
}
