//! The ends of blobs.
//!
//! A blob is large enough that an image has few, and ends where its contents decide: another image
//! with the same contents gets the same blobs after the next end, whatever came before.

use super::contents::ContentHash;

/// A registry takes some time for each blob, whatever its length.
const LEAST: u64 = 256 << 20;
/// With [`SPARE`] less than [`MOST_BLOB_BYTES`](super::MOST_BLOB_BYTES).
const MOST_LEAST: u64 = 8 << 30;
/// A blob is no longer than the least by more than this, and one of 16 contents ends it: that none
/// of 256 does is rarer than one in ten million.
const SPARE: u64 = 1 << 30;
const ENDS: u8 = 0x0f;

/// The sort of an image's blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobsOf {
    /// Bulk memory.
    Memory,
    /// Large files of CRIU.
    Files,
}

impl BlobsOf {
    /// The most blobs of the sort: of both, with six other layers, as many as an image may have.
    pub(super) fn limit(self) -> usize {
        match self {
            Self::Memory => 300,
            Self::Files => 94,
        }
    }

    /// Returns the name for messages.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Memory => "bulk memory",
            Self::Files => "large files",
        }
    }

    /// The number of blobs of the least length, as long as that may grow. They and as many of other
    /// images are less than the most.
    fn share(self) -> u64 {
        match self {
            Self::Memory => 128,
            Self::Files => 32,
        }
    }
}

/// The lengths of an image's blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// No blob but the last is shorter.
    pub least: u64,
    /// No content begins at this length or after it.
    pub most: u64,
}

impl Lengths {
    /// Returns the lengths for an image with `bytes` of such contents, whether they are moved or
    /// not: another replica has about as many, and so the same lengths.
    #[must_use]
    pub fn of(sort: BlobsOf, bytes: u64) -> Self {
        let share = bytes.div_ceil(sort.share()).clamp(LEAST, MOST_LEAST);
        // At most 8 GiB, which is a power of two itself.
        let least = share.checked_next_power_of_two().unwrap_or(MOST_LEAST);
        Self {
            least,
            most: least + SPARE - (4 << 20),
        }
    }

    /// Returns the most new blobs that these contents make.
    pub(super) fn most_blobs(&self, contents: usize, bytes: u64) -> usize {
        let of_bytes = bytes / self.least.max(1) + 1;
        usize::try_from(of_bytes).map_or(contents, |of_bytes| of_bytes.min(contents))
    }

    /// Whether a blob ends after this content, with which it has `bytes`.
    pub(super) fn is_end(&self, bytes: u64, last: &ContentHash) -> bool {
        let is_mark = || last.0[31] & ENDS == 0;
        bytes >= self.most || (bytes >= self.least && is_mark())
    }
}
