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

impl ImageDirectoryError {
    /// Whether the image lacks something, or differs from what was written. After any other error
    /// it may be as it was.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Manifest(ManifestError::Io { source, .. })
            | Self::File(FileError::Io { source, .. }) => is_other(source),
            Self::Manifest(error) => matches!(error, ManifestError::Malformed { .. }),
            Self::Store(error) => is_damaged(error),
            Self::File(_) => true,
            _ => false,
        }
    }
}

fn is_damaged(contents: &StoreError) -> bool {
    match contents {
        StoreError::Needed { problem, .. } => is_damaged(problem),
        StoreError::Io { source, .. } => is_other(source),
        StoreError::Damaged { .. }
        | StoreError::Chunk { .. }
        | StoreError::CutOff { .. }
        | StoreError::Missing { .. } => true,
        _ => false,
    }
}

/// Whether something else is in the place of a file (`stasis_linux::file`).
fn is_other(source: &io::Error) -> bool {
    source.kind() == io::ErrorKind::InvalidData
}
