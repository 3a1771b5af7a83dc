//! The contents of an index: processes, their areas, and the places of their chunks.

use borsh::{BorshDeserialize, BorshSerialize};

use crate::{CHUNK, Checksum, StoredPages};

/// The bulk memory of one process.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ProcessMemory {
    /// Pid in the process's own, innermost pid namespace; a restore gives it the same one.
    pub pid: i32,
    /// Its areas, in the order of their addresses.
    pub areas: Vec<Area>,
}

/// A range of addresses whose contents are in the store. CRIU's images have a hole there: a mapping
/// without access (`PROT_NONE`), over which the engine maps a file in memory.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Area {
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// The chunks, in the order of their numbers, without those that have only zeros.
    pub chunks: Vec<Chunk>,
}

/// At most 4 MiB of an area.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Chunk {
    /// The chunk begins at `number * CHUNK` from the start of its area.
    pub number: u32,
    /// Which of its pages are stored.
    pub pages: StoredPages,
    /// Checksum of the stored pages, one after the other.
    pub checksum: Checksum,
    /// Place of the stored pages.
    pub place: ChunkLocation,
}

/// The place of a chunk's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ChunkLocation {
    /// The number of the pack in the index's list.
    pub pack: u32,
    /// Offset from the start of the pack; a multiple of [`PAGE`](crate::PAGE).
    pub offset: u64,
    /// Stored length in bytes.
    pub bytes: u32,
    /// Stored form.
    pub encoding: Encoding,
}

impl ChunkLocation {
    /// The end of the last page, bytes from the start of the pack.
    pub(crate) fn end(&self) -> u64 {
        let bytes = u64::from(self.bytes).next_multiple_of(crate::PAGE as u64);
        self.offset.saturating_add(bytes)
    }
}

/// How contents are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum Encoding {
    /// As they are.
    Raw,
    /// A zstd frame.
    Zstd,
}

impl Area {
    /// The length of a chunk: [`CHUNK`], unless the area ends before; 0 outside of the area.
    pub(crate) fn chunk_bytes(&self, number: u32) -> usize {
        let offset = u64::from(number) * CHUNK as u64;
        let left = self.bytes.saturating_sub(offset);
        usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))
    }
}
