//! The list of what is in which blob.

use std::collections::HashSet;

use super::{BlobDigest, pack_of};
use crate::index::codec::{Input, number};
use crate::{CHUNK, Encoding, PAGE};

const MAGIC: &[u8; 8] = b"STASISBC";
const VERSION: u32 = 1;
/// The most bytes of a list: enough for 5 TiB.
pub const MOST_CONTENTS_BYTES: u64 = 64 << 20;

const CONTENT: usize = 32 + 4 + 8 + 4 + 1;
/// Without its contents.
const BLOB: usize = 32 + 8 + 4;

/// How contents are recognised that cannot be compared, since they are elsewhere: BLAKE3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// Of these contents, as they are before they are compressed.
    #[must_use]
    pub fn of(contents: &[u8]) -> Self {
        Self(blake3::hash(contents).into())
    }
}

/// A blob, and all that is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobContents {
    /// Its name.
    pub digest: BlobDigest,
    /// Its length.
    pub bytes: u64,
    /// What is in it, in the order of their offsets.
    pub contents: Vec<Content>,
}

/// The stored pages of a chunk, in a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Of the pages.
    pub hash: ContentHash,
    /// The length of the pages.
    pub content_bytes: u32,
    /// From the start of the blob; a multiple of [`PAGE`].
    pub offset: u64,
    /// How many bytes lie there.
    pub bytes: u32,
    /// How they lie there.
    pub encoding: Encoding,
}

/// Writes the list.
#[must_use]
pub fn encode(blobs: &[BlobContents]) -> Vec<u8> {
    let mut list = Vec::new();
    list.extend(MAGIC);
    list.extend(VERSION.to_le_bytes());
    list.extend(count(blobs).to_le_bytes());
    for blob in blobs {
        list.extend(blob.digest);
        list.extend(blob.bytes.to_le_bytes());
        list.extend(count(&blob.contents).to_le_bytes());
        for content in &blob.contents {
            list.extend(content.hash.0);
            list.extend(content.content_bytes.to_le_bytes());
            list.extend(content.offset.to_le_bytes());
            list.extend(content.bytes.to_le_bytes());
            list.push(number(content.encoding));
        }
    }
    list
}

/// The length of what a list has about so many blobs and contents.
pub(super) fn listed_bytes(blobs: usize, contents: usize) -> u64 {
    (blobs * BLOB + contents * CONTENT) as u64
}

/// A longer list would not be read.
fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}

/// Reads a list that anybody may have written.
///
/// # Errors
/// What is wrong with it.
pub fn decode(list: &[u8]) -> Result<Vec<BlobContents>, String> {
    let mut input = Input(list);
    if input.take::<8>()? != *MAGIC {
        return Err("it is not a list of contents".to_owned());
    }
    match input.u32()? {
        VERSION => {}
        other => {
            return Err(format!(
                "version {other} is unknown; this stasis reads {VERSION}"
            ));
        }
    }
    let blobs = input.list(BLOB, |input| {
        Ok(BlobContents {
            digest: input.take()?,
            bytes: input.u64()?,
            contents: input.list(CONTENT, content)?,
        })
    })?;
    if !input.0.is_empty() {
        return Err(format!("there are {} bytes after its end", input.0.len()));
    }
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

fn content(input: &mut Input<'_>) -> Result<Content, String> {
    Ok(Content {
        hash: ContentHash(input.take()?),
        content_bytes: input.u32()?,
        offset: input.u64()?,
        bytes: input.u32()?,
        encoding: input.encoding()?,
    })
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
