//! Why the bulk memory of an image cannot be restored.

use std::path::PathBuf;

use stasis_memory_store::StoreError;

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
    /// No directory of the image's tier on this machine holds its bulk memory.
    #[error(
        "the bulk memory of the image is not in {searched}{why}; restore on the machine that has it, \
         or from another image"
    )]
    Gone {
        /// The directories that were searched.
        searched: String,
        /// The probable reason, beginning with ": ".
        why: &'static str,
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
            Self::Gone { .. } => Kind::MemoryMissing,
        }
    }
}
