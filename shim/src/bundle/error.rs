//! Why a bundle cannot be used.

use std::path::PathBuf;

use crate::io_error::IoError;

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleError {
    /// `config.json` cannot be read or is no specification.
    #[error("cannot read {path}: {reason}")]
    Spec {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        reason: String,
    },
    /// The root file system cannot be mounted.
    #[error("cannot mount the root file system at {target}: {source}")]
    Mount {
        /// The mount point.
        target: PathBuf,
        /// The mount's error.
        source: IoError,
    },
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The result of this folder's functions.
pub(crate) type Result<T> = std::result::Result<T, BundleError>;
