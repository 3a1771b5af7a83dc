//! The contents that an image needs, and the blobs of the other side that have enough of them.

use std::collections::{HashMap, HashSet};

use super::contents::{BlobContents, Content, ContentHash};
use super::split::{BlobsOf, Lengths};
use crate::file_contents::queue::for_each;
use crate::index::codec;
use crate::index::limits::INDEX_BYTES;
use crate::{Checksum, Chunk, Index, Reader, StoreError, StoredPages};

/// A blob is not referred to if an image needs less than one part of it in this number: a pull of
/// the image would fetch the rest as well.
const USED: u64 = 4;
/// The most contents of blobs that are referred to, all of which are listed: they take 12 MiB.
const MOST_LISTED: usize = 1 << 18;

/// The identity of a content: its hash, and its length.
pub(super) type Key = (ContentHash, u32);

/// A chunk of an image, and its form in a blob.
#[derive(Debug, Clone)]
pub(super) struct Needed<'a> {
    /// The numbers of its process and area in the index.
    pub(super) at: (usize, usize),
    /// The chunk as it is stored now.
    pub(super) chunk: &'a Chunk,
    pub(super) trimmed: Trimmed,
}

/// A content without pages of zeros.
#[derive(Debug, Clone)]
pub(super) struct Trimmed {
    pub(super) key: Key,
    pub(super) pages: StoredPages,
    pub(super) checksum: Checksum,
}

/// Finds every chunk of an image that is not all zeros, in the order of processes and addresses.
/// All are read, by several threads, and compared with their checksums; a place that several chunks
/// share is read once.
pub(super) fn needed<'a>(
    index: &'a Index,
    reader: &Reader,
    threads: usize,
) -> Result<Vec<Needed<'a>>, StoreError> {
    let mut distinct = Vec::new();
    let mut numbers = HashMap::new();
    let mut all = Vec::new();
    for (p, process) in index.processes.iter().enumerate() {
        for (a, area) in process.areas.iter().enumerate() {
            for chunk in &area.chunks {
                let place = (chunk.place.pack, chunk.place.offset);
                let what = (place, &chunk.pages, chunk.checksum);
                let number = *numbers.entry(what).or_insert_with(|| {
                    distinct.push((process.pid, area.start, chunk));
                    distinct.len() - 1
                });
                all.push(((p, a), chunk, number));
            }
        }
    }
    let trimmed = read_all(&distinct, reader, threads)?;
    let needed = all.into_iter().filter_map(|(at, chunk, number)| {
        let trimmed = trimmed.get(number)?.clone()?;
        Some(Needed { at, chunk, trimmed })
    });
    Ok(needed.collect())
}

/// Reads chunks of processes and areas, in their order.
fn read_all(
    chunks: &[(i32, u64, &Chunk)],
    reader: &Reader,
    threads: usize,
) -> Result<Vec<Option<Trimmed>>, StoreError> {
    for_each(chunks, threads, |(process, area, chunk), buffer| {
        let loaded = reader.load(*process, *area, chunk, buffer)?;
        Ok(Trimmed::of(&chunk.pages, loaded.verified()?))
    })
}

impl Trimmed {
    /// Trims a content; `None` if it is all zeros.
    fn of(stored: &StoredPages, content: &[u8]) -> Option<Self> {
        let (pages, parts) = trim(stored, content)?;
        let mut hasher = blake3::Hasher::new();
        parts.iter().for_each(|part| {
            hasher.update(part);
        });
        Some(Self {
            // A chunk has at most 4 MiB.
            key: (
                ContentHash(hasher.finalize().into()),
                u32::try_from(pages.bytes()).unwrap_or(u32::MAX),
            ),
            checksum: Checksum::of_parts(&parts),
            pages,
        })
    }
}

/// Finds the pages of a content that are not zeros: contents that lie in a pack as in their process
/// have all of theirs, and equal ones would not be found.
pub(super) fn trim<'c>(
    stored: &StoredPages,
    content: &'c [u8],
) -> Option<(StoredPages, Vec<&'c [u8]>)> {
    match stored {
        StoredPages::All(_) => {
            let pages = StoredPages::of(content)?;
            let parts = pages.slices(content)?;
            Some((pages, parts))
        }
        StoredPages::Some(_) => Some((stored.clone(), vec![content])),
    }
}

/// Refuses contents that might exceed an image's limits, if nothing can be compressed; returns how
/// many blobs of others it may have as well.
pub(super) fn refuse_too_much(
    sort: BlobsOf,
    index: &Index,
    contents: &HashSet<Key>,
    lengths: Lengths,
) -> Result<usize, StoreError> {
    let too_much = |what| StoreError::TooMuch { what };
    let (blobs, most) = (sort.limit(), codec::most_bytes(index, sort.limit()));
    if most > INDEX_BYTES {
        let what = format!("its index may have {most} bytes, and no more than {INDEX_BYTES}");
        return Err(too_much(what));
    }
    let bytes = contents.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    let others = blobs.checked_sub(lengths.most_blobs(contents.len(), bytes));
    others.ok_or_else(|| {
        let [all, each] = [bytes, lengths.least].map(|bytes| bytes.div_ceil(1 << 20));
        let what = sort.what();
        too_much(format!(
            "{all} MiB of {what} do not fit into {blobs} blobs of {each} MiB"
        ))
    })
}

/// Chooses the blobs of the other side that are worth it, at most `most`: the most needed ones.
pub(super) fn kept(
    needed: &[Needed<'_>],
    there: &[BlobContents],
    most: usize,
) -> Vec<BlobContents> {
    let mut open: HashSet<Key> = needed.iter().map(|needed| needed.trimmed.key).collect();
    let mut kept: Vec<(u64, &BlobContents)> = Vec::new();
    let mut seen = HashSet::new();
    for blob in there.iter().filter(|blob| seen.insert(blob.digest)) {
        let mine = |content: &&Content| open.contains(&key(content));
        let used: u64 = blob.contents.iter().filter(mine).map(stored).sum();
        if used > 0 && used * USED >= blob.bytes {
            // Contents in this blob count for no other blob.
            blob.contents.iter().map(key).for_each(|key| {
                open.remove(&key);
            });
            kept.push((used, blob));
        }
    }
    kept.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
    let mut listed = 0;
    let has_room = |blob: &&BlobContents| {
        listed += blob.contents.len();
        listed <= MOST_LISTED
    };
    let kept = kept.into_iter().map(|(_, blob)| blob).take(most);
    let mut kept: Vec<_> = kept.take_while(has_room).cloned().collect();
    // Of two blobs with a content, the choice does not depend on their other contents.
    kept.sort_by_key(|blob| blob.digest);
    kept
}

pub(super) fn key(content: &Content) -> Key {
    (content.hash, content.content_bytes)
}

fn stored(content: &Content) -> u64 {
    u64::from(content.bytes)
}
