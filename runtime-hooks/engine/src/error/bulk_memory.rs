//! Why the bulk memory of an image cannot be restored.

use std::path::PathBuf;

use stasis_memory_store::{ImageId, StoreError};

use crate::error::io_kind::of_store;
use crate::error::kind::Kind;

/// Why bulk memory cannot be restored.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum BulkMemoryError {
    /// The plugin cannot be used, and CRIU alone would restore processes without their memory.
    #[error(
        "the image has bulk memory in files of its own, which CRIU restores only with the plugin \
         of stasis, and the plugin cannot be used: {0}; correct that and restore again"
    )]
    NoPlugin(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{image} lacks its index of bulk memory (stasis-memory.index), so not all of the image was \
         copied, or it was changed; restore from a complete copy"
    )]
    NoIndex { image: PathBuf },
    #[error(
        "the bulk memory in {image} belongs to another checkpoint ({found}, and the manifest says \
         {expected}); restore from an unchanged copy"
    )]
    OtherImage {
        image: PathBuf,
        found: String,
        expected: String,
    },
    #[error(
        "the bulk memory in {store} is not that of the image {image}: it was written with another \
         index; restore from an unchanged copy"
    )]
    OtherStore { image: PathBuf, store: PathBuf },
    #[error(
        "the GPU contents {id} of the image are not in {directory} (gpu_contents.directory): they \
         were deleted, or lost with a tmpfs at a restart, or the image was copied without them; \
         restore on the machine that has them, or from another image"
    )]
    Gone { id: ImageId, directory: PathBuf },
    #[error(
        "the GPU contents {id} of the image lie apart from it, and gpu_contents.directory is empty \
         in the settings; name the directory there that has them"
    )]
    Nowhere { id: ImageId },
}

impl BulkMemoryError {
    /// Why bulk memory cannot be restored.
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
