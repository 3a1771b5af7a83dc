//! Why something that is not to be kept is still there.

use stasis_memory_store::StoreError;

use crate::error::io_kind::of_store;
use crate::error::kind::Kind;
use crate::image::directory::ImageDirectoryError;
use crate::image::manifest::ManifestError;

/// Why something was not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRemoved {
    #[error("an operation uses it")]
    InUse,
    #[error("another image has taken its place meanwhile")]
    Replaced,
    #[error(transparent)]
    Directory(#[from] ImageDirectoryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotRemoved {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::InUse | Self::Replaced => Kind::Busy,
            Self::Directory(error) => error.kind(),
            Self::Manifest(error) => error.kind(),
            Self::Store(error) => of_store(error),
        }
    }
}
