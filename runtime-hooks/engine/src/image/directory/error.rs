//! The errors of an image directory.

use std::io;
use std::path::PathBuf;

use stasis_memory_store::StoreError;

use crate::image::files::FileError;
use crate::image::manifest::ManifestError;

/// Why an image directory cannot be used, or an image in it is not complete.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ImageDirectoryError {
    #[error("another checkpoint is writing an image into {0}; try again when it is done")]
    Busy(PathBuf),
    /// A reader is in the way of an image that is to be moved up.
    #[error("somebody reads the image in {0} (a restore, a push); try again when that is done")]
    Read(PathBuf),
    #[error("`stasis gc` is removing the image in {0}; try again when it is done")]
    Removed(PathBuf),
    #[error("the image in {0} is not complete: it has no inventory.img, which CRIU writes last")]
    Incomplete(PathBuf),
    #[error("the file system of {path} could not write all of the image")]
    NotOnDisk {
        /// The image directory, or the directory of its bulk memory.
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
