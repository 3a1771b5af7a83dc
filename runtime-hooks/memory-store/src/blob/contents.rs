//! The list of the contents of each blob.

use std::collections::HashSet;

use borsh::{BorshDeserialize, BorshSerialize};

use super::{BlobDigest, pack_of};
use crate::index::codec::written;
use crate::{CHUNK, Encoding, PAGE};

const MAGIC: &[u8; 8] = b"STASISBC";
const VERSION: u32 = 1;
/// The most bytes of a list: enough for 5 TiB.
pub const MOST_CONTENTS_BYTES: u64 = 64 << 20;

const CONTENT: usize = 32 + 4 + 8 + 4 + 1;
/// A blob without its contents.
const BLOB: usize = 32 + 8 + 4;

/// A hash of contents that cannot be compared, since they are elsewhere: BLAKE3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, BorshSerialize, BorshDeserialize)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// Hashes contents before their compression.
    #[must_use]
    pub fn of(contents: &[u8]) -> Self {
        Self(blake3::hash(contents).into())
    }
}

/// A blob, and all its contents.
#[derive(Debug, Clone, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct BlobContents {
    /// Name of the blob.
    pub digest: BlobDigest,
    /// Length in bytes.
    pub bytes: u64,
    /// The contents, in the order of their offsets.
    pub contents: Vec<Content>,
}

/// The stored pages of a chunk, in a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Content {
    /// Hash of the pages.
    pub hash: ContentHash,
    /// Length of the pages.
    pub(crate) content_bytes: u32,
    /// Offset from the start of the blob; a multiple of [`PAGE`].
    pub offset: u64,
    /// Stored length in bytes.
    pub bytes: u32,
    /// Stored form.
    pub encoding: Encoding,
}

/// Writes the list.
#[must_use]
pub fn encode(blobs: &[BlobContents]) -> Vec<u8> {
    written(&(*MAGIC, VERSION, blobs))
}

/// The length of a list's entries for these numbers of blobs and contents.
pub(super) fn listed_bytes(blobs: usize, contents: usize) -> u64 {
    (blobs * BLOB + contents * CONTENT) as u64
}

/// Reads a list from an untrusted source.
pub fn decode(mut list: &[u8]) -> Result<Vec<BlobContents>, String> {
    let unreadable = |error: std::io::Error| error.to_string();
    let (magic, version) = <([u8; 8], u32)>::deserialize(&mut list).map_err(unreadable)?;
    if magic != *MAGIC {
        return Err("it is not a list of contents".to_owned());
    }
    if version != VERSION {
        return Err(format!(
            "version {version} is unknown; this stasis reads {VERSION}"
        ));
    }
    let blobs: Vec<BlobContents> = borsh::from_slice(list).map_err(unreadable)?;
    let mut packs = HashSet::new();
    for blob in &blobs {
        let pack = pack_of(&blob.digest, blob.bytes);
        if !pack.is_some_and(|pack| packs.insert(pack.creator)) {
            return Err("a blob in it is impossible or listed twice".to_owned());
        }
        check(blob)?;
    }
    Ok(blobs)
}

fn check(blob: &BlobContents) -> Result<(), String> {
    let page = PAGE as u64;
    let mut free_from = 0;
    for content in &blob.contents {
        let Content { offset, bytes, .. } = *content;
        let pages = u64::from(content.content_bytes);
        let fits = match content.encoding {
            Encoding::Raw => u64::from(bytes) == pages,
            Encoding::Zstd => bytes > 0 && u64::from(bytes) < pages,
        };
        let whole = pages > 0 && pages <= CHUNK as u64 && pages.is_multiple_of(page);
        let end = offset.checked_add(u64::from(bytes).next_multiple_of(page));
        let placed = offset >= free_from && offset.is_multiple_of(page);
        match end.filter(|end| fits && whole && placed && *end <= blob.bytes) {
            Some(end) => free_from = end,
            None => return Err(format!("{bytes} bytes at {offset} of a blob cannot be")),
        }
    }
    Ok(())
}
