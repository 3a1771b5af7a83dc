//! Bulk memory as blobs, for registries: the contents that are moved, and their form on the other
//! side (docs/internals/image-format.md, "In a registry").
//!
//! A blob is all of a pack behind its first page. The SHA-256 of a blob is its name, and that of
//! the pack that it becomes ([`pack_of`]): a pulled image is an ordinary one.
//!
//! * [`gather`] puts contents that the other side lacks into new blobs; [`cut`] decides their ends.
//! * [`files`] turns large files of CRIU into such memory, and [`write_files`] turns it back.
//! * [`contents`] is the list of the contents of each blob, by which the next push finds them.

pub(crate) mod contents;
pub(crate) mod files;
pub(crate) mod gather;
mod plan;
pub(crate) mod split;
pub(crate) mod write_files;

use crate::{ImageId, PAGE, Pack};

/// The SHA-256 of a blob.
pub type BlobDigest = [u8; 32];

/// The most bytes of a blob: less than the limit of the strictest large registry.
pub const MOST_BLOB_BYTES: u64 = 9 << 30;

/// The pack that a blob of this length becomes; `None`: the length is impossible.
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

/// The first page of a pack, before its blob.
#[must_use]
pub fn pack_header(pack: &Pack) -> Vec<u8> {
    pack.header().as_slice().to_vec()
}

#[cfg(test)]
mod tests;
