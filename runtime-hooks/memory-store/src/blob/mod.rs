//! Bulk memory as blobs, for registries: what is moved, and how the other side has it
//! (docs/image-format.md, "In a registry").
//!
//! A blob is what a pack has behind its first page. It is named by its SHA-256, and so is the pack
//! that it becomes ([`pack_of`]): a pulled image is an ordinary one.
//!
//! * [`gather`] puts what the other side lacks into new blobs, which end where [`cut`] says.
//! * [`files`] has large files of CRIU as such memory, and [`write_files`] makes them of it again.
//! * [`contents`] is the list of what is in which blob, by which the next push finds it.

pub(crate) mod contents;
pub(crate) mod cut;
pub(crate) mod files;
pub(crate) mod gather;
mod plan;
pub(crate) mod write_files;

use crate::{ImageId, PAGE, Pack};

/// The SHA-256 of a blob.
pub type BlobDigest = [u8; 32];

/// The most bytes of a blob: less than what the strictest of the large registries take.
pub const MOST_BLOB_BYTES: u64 = 9 << 30;

/// The pack that a blob of so many bytes becomes; `None`: it cannot be one.
#[must_use]
pub fn pack_of(digest: &BlobDigest, bytes: u64) -> Option<Pack> {
    let whole = bytes > 0 && bytes <= MOST_BLOB_BYTES && bytes.is_multiple_of(PAGE as u64);
    let creator = u128::from_be_bytes(*digest.first_chunk()?);
    whole.then_some(Pack {
        creator: ImageId::new(creator),
        stream: 0,
        bytes: PAGE as u64 + bytes,
    })
}

/// What a pack has before its blob.
#[must_use]
pub fn pack_header(pack: &Pack) -> Vec<u8> {
    pack.header().as_slice().to_vec()
}

#[cfg(test)]
mod tests;
