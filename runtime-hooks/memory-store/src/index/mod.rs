//! The index: for each chunk of each process, its place in a pack.
//!
//! [`area`] has the types of its contents, [`codec`] their form in the file, [`limits`] the checks
//! before an index from a file is used, and [`find`] finds an image by its index.

pub(crate) mod area;
pub(crate) mod codec;
pub(crate) mod find;
pub(crate) mod limits;

use std::path::Path;

use borsh::{BorshDeserialize, BorshSerialize};
use stasis_linux::file;

use crate::{INDEX_FILE, ImageId, Pack, PacksIn, ProcessMemory, STORE_INDEX_FILE, StoreError};

/// All memory of one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Index {
    /// The checkpoint.
    pub image_id: ImageId,
    /// Where the packs lie.
    pub packs_in: PacksIn,
    /// The packs that are needed; places refer to this list.
    pub packs: Vec<Pack>,
    /// The processes.
    pub processes: Vec<ProcessMemory>,
}

impl Index {
    /// Reads an image's index. `None`: it has none, so CRIU has all memory.
    pub fn read(image_dir: &Path) -> Result<Option<Self>, StoreError> {
        Self::read_file(&image_dir.join(INDEX_FILE))
    }

    /// Reads a store's index. `None`: the checkpoint that wrote the store was interrupted.
    pub(crate) fn read_store(directory: &Path) -> Result<Option<Self>, StoreError> {
        Self::read_file(&directory.join(STORE_INDEX_FILE))
    }

    pub(crate) fn read_file(path: &Path) -> Result<Option<Self>, StoreError> {
        let bytes = file::read(path, limits::INDEX_BYTES).map_err(StoreError::io("read", path))?;
        bytes.map(|bytes| codec::decode(&bytes, path)).transpose()
    }

    /// Decodes an index, and checks it in every way that needs no other file.
    pub fn decode(bytes: &[u8]) -> Result<Self, StoreError> {
        codec::decode(bytes, Path::new(INDEX_FILE))
    }

    /// Encodes the index for [`Self::decode`].
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// The stored bytes that its chunks refer to, counted at each reference.
    pub fn stored_bytes(&self) -> u64 {
        self.areas()
            .flat_map(|area| &area.chunks)
            .map(|chunk| u64::from(chunk.place.bytes))
            .sum()
    }

    /// Whether the index has no area.
    pub fn is_empty(&self) -> bool {
        self.areas().next().is_none()
    }

    /// All areas of all processes.
    pub fn areas(&self) -> impl Iterator<Item = &crate::Area> {
        self.processes.iter().flat_map(|process| &process.areas)
    }
}

#[cfg(test)]
pub(crate) mod tests;
