//! The contents of an index: processes, their areas, and the places of their chunks.

use borsh::{BorshDeserialize, BorshSerialize};

use crate::{CHUNK, Checksum, StoredPages};

/// The bulk memory of one process.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ProcessMemory {
    /// Its pid in its own, innermost pid namespace; that is the one that a restore gives it back.
    pub pid: i32,
    /// Its areas, in the order of their addresses.
    pub areas: Vec<Area>,
}

/// A range of addresses whose contents are in the store. CRIU's images have a hole there: a mapping
/// without access (`PROT_NONE`), over which the engine maps a file in memory.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Area {
    /// Address of its first byte.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// Its chunks, in the order of their numbers, without those that hold nothing but zeros.
    pub chunks: Vec<Chunk>,
}

/// At most 4 MiB of an area.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Chunk {
    /// It begins at `number * CHUNK` from the start of its area.
    pub number: u32,
    /// Which of its pages are stored.
    pub pages: StoredPages,
    /// Of the stored pages, one after the other.
    pub checksum: Checksum,
    /// Where they are.
    pub place: Place,
}

/// Where the contents of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Place {
    /// The number of the pack in the index's list.
    pub pack: u32,
    /// From the start of the pack; a multiple of [`PAGE`](crate::PAGE).
    pub offset: u64,
    /// How many bytes lie there.
    pub bytes: u32,
    /// How they lie there.
    pub encoding: Encoding,
}

impl Place {
    /// Where its last page ends, bytes from the start of the pack.
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
    /// How long it is: [`CHUNK`], unless the area ends before; 0 outside of the area.
    #[must_use]
    pub fn chunk_bytes(&self, number: u32) -> usize {
        let offset = u64::from(number) * CHUNK as u64;
        let left = self.bytes.saturating_sub(offset);
        usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))
    }
}
