//! Images that a command cannot look at.

use std::path::PathBuf;

use crate::error::kind::Kind;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is none.
    #[error("there is no image in {0}")]
    NoImage(PathBuf),
    /// It is in two directories.
    #[error(
        "a checkpoint was cut off while its image took the place of an earlier one in {0}; the \
         next restore from there, or checkpoint into it, finishes that"
    )]
    CutOff(PathBuf),
}

impl ImageError {
    /// Why there is no report.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoImage(_) => Kind::ImageDirectory,
            Self::CutOff(_) => Kind::CutOff,
        }
    }
}
