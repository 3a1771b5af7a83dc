//! Why the bulk memory of an image cannot be restored.

use std::path::PathBuf;

use stasis_memory_store::{ImageId, StoreError};

use crate::error::io_kind::of_store;
use crate::error::kind::Kind;

/// Why bulk memory cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum BulkMemoryError {
    /// The plugin cannot be used, and CRIU alone would restore processes without their memory.
    #[error(
        "the image has bulk memory in files of its own, which CRIU restores only with the plugin \
         of stasis, and the plugin cannot be used: {0}; correct that and restore again"
    )]
    NoPlugin(String),
    /// The index or a pack is not valid.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The index is missing.
    #[error(
        "{image} lacks its index of bulk memory (stasis-memory.index), so not all of the image was \
         copied, or it was changed; restore from a complete copy"
    )]
    NoIndex {
        /// The image directory.
        image: PathBuf,
    },
    /// The index belongs to another checkpoint.
    #[error(
        "the bulk memory in {image} belongs to another checkpoint ({found}, and the manifest says \
         {expected}); restore from an unchanged copy"
    )]
    OtherImage {
        /// The image directory.
        image: PathBuf,
        /// The checkpoint that the index belongs to.
        found: String,
        /// The checkpoint that the image belongs to.
        expected: String,
    },
    /// The store that the image names was written with another index.
    #[error(
        "the bulk memory in {store} is not that of the image {image}: it was written with another \
         index; restore from an unchanged copy"
    )]
    OtherStore {
        /// The image directory.
        image: PathBuf,
        /// The store.
        store: PathBuf,
    },
    /// The directory of the settings does not have its GPU contents.
    #[error(
        "the GPU contents {id} of the image are not in {directory} (gpu_contents.directory): they \
         were deleted, or lost with a tmpfs at a restart, or the image was copied without them; \
         restore on the machine that has them, or from another image"
    )]
    Gone {
        /// The id of image and contents.
        id: ImageId,
        /// The directory that was searched.
        directory: PathBuf,
    },
    /// They lie apart from it, and the settings name no directory.
    #[error(
        "the GPU contents {id} of the image lie apart from it, and gpu_contents.directory is empty \
         in the settings; name the directory there that has them"
    )]
    Nowhere {
        /// The id of image and contents.
        id: ImageId,
    },
}

impl BulkMemoryError {
    /// Why bulk memory cannot be restored.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoPlugin(_) => Kind::NoPlugin,
            Self::Store(error) => of_store(error),
            Self::NoIndex { .. } | Self::OtherImage { .. } | Self::OtherStore { .. } => {
                Kind::ImageDamaged
            }
            Self::Gone { .. } | Self::Nowhere { .. } => Kind::MemoryMissing,
        }
    }
}
