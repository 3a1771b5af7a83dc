//! The errors of an image directory.

use std::io;
use std::path::PathBuf;

use stasis_memory_store::StoreError;

use crate::image::files::FileError;
use crate::image::manifest::ManifestError;

/// Why an image directory cannot be used, or an image in it is not complete.
#[derive(Debug, thiserror::Error)]
pub enum ImageDirectoryError {
    /// Another process writes an image there.
    #[error("another checkpoint is writing an image into {0}; try again when it is done")]
    Busy(PathBuf),
    /// A reader is in the way of an image that is to be moved up.
    #[error("somebody reads the image in {0} (a restore, a push); try again when that is done")]
    Read(PathBuf),
    /// `stasis gc` removes the image.
    #[error("`stasis gc` is removing the image in {0}; try again when it is done")]
    Removed(PathBuf),
    /// CRIU has not written all of the image.
    #[error("the image in {0} is not complete: it has no inventory.img, which CRIU writes last")]
    Incomplete(PathBuf),
    /// The disk did not take all data.
    #[error("the file system of {path} could not write all of the image")]
    NotOnDisk {
        /// The image directory, or the directory of its bulk memory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The kernel refuses.
    #[error("cannot {action} {path}")]
    Io {
        /// "make", "lock", "move", ...
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Its manifest cannot be read, written or removed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file of the image cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The GPU contents cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}
