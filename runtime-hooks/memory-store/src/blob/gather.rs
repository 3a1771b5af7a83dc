//! Puts contents that the other side lacks into new blobs, and makes the index of all blobs.

use std::collections::{HashMap, HashSet};

use super::contents::{BlobContents, Content, listed_bytes};
use super::plan::{Key, Needed, kept, key, needed, refuse_too_much, trim};
use super::split::{BlobsOf, Lengths};
use super::{BlobDigest, pack_of};
use crate::file_contents::queue::for_each;
use crate::index::limits;
use crate::pack::compress::Compressor;
use crate::{
    Buffer, Chunk, ChunkLocation, Encoding, Index, PAGE, Pack, PacksIn, Reader, StoreError,
};

/// The fastest of zstd's levels that are not negative: a network is slower, a disk may not be.
const LEVEL: i32 = 1;

/// Receives new blobs, one after the other.
pub trait NewBlobs {
    /// Why they cannot be received.
    type Error: From<StoreError>;

    /// Receives more bytes of the blob.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;

    /// The blob is complete; the next bytes begin another.
    fn end(&mut self) -> Result<BlobDigest, Self::Error>;
}

/// The bulk memory, or the large files, of an image in blobs.
#[derive(Debug)]
pub struct Gathered {
    /// The index of the image that has them as its packs.
    pub index: Index,
    /// The blobs, in the order of their digests: a repeated push has the same list.
    pub blobs: Vec<BlobContents>,
    /// The blobs that the other side had before.
    pub kept: HashSet<BlobDigest>,
}

/// The blobs that are kept, and the contents for new ones.
#[derive(Debug)]
pub struct Plan<'a> {
    index: &'a Index,
    reader: &'a Reader,
    needed: Vec<Needed<'a>>,
    kept: Vec<BlobContents>,
    lengths: Lengths,
    most_listed_bytes: u64,
}

impl<'a> Plan<'a> {
    /// Compares all contents of an index with those of blobs that are `there`. `threads` read them.
    ///
    /// # Errors
    /// [`StoreError`]: contents cannot be read, or are damaged; [`StoreError::TooMuch`]: there are
    /// more than an image may have in a registry.
    pub fn of(
        sort: BlobsOf,
        index: &'a Index,
        reader: &'a Reader,
        there: &[BlobContents],
        lengths: impl FnOnce(u64) -> Lengths,
        threads: usize,
    ) -> Result<Self, StoreError> {
        let needed = needed(index, reader, threads)?;
        let sizes = needed.iter().map(|needed| u64::from(needed.trimmed.key.1));
        let lengths = lengths(sizes.sum());
        let distinct: HashSet<Key> = needed.iter().map(|needed| needed.trimmed.key).collect();
        let others = refuse_too_much(sort, index, &distinct, lengths)?;
        let kept = kept(&needed, there, others.min(sort.limit() / 2));
        let others = kept.iter().map(|blob| blob.contents.len());
        let most_listed_bytes = listed_bytes(sort.limit(), distinct.len() + others.sum::<usize>());
        Ok(Self {
            index,
            reader,
            needed,
            kept,
            lengths,
            most_listed_bytes,
        })
    }

    /// Returns the most bytes that the list of contents has about its blobs.
    pub fn most_listed_bytes(&self) -> u64 {
        self.most_listed_bytes
    }

    /// Keeps only blobs of the other side that are good; `threads` look at one each. Contents of
    /// the others go into new ones.
    ///
    /// # Errors
    /// [`StoreError`]: a thread panicked.
    pub fn retain_kept(
        &mut self,
        is_good: impl Fn(&BlobContents) -> bool + Sync,
        threads: usize,
    ) -> Result<(), StoreError> {
        let good = for_each(&self.kept, threads, |blob, _| Ok(is_good(blob)))?;
        let kept = self.kept.drain(..).zip(good);
        self.kept = kept
            .filter_map(|(blob, good)| good.then_some(blob))
            .collect();
        Ok(())
    }

    /// Puts contents that are in none of the blobs into new ones: they are read once more,
    /// compressed and written.
    pub fn put<N: NewBlobs>(self, new: &mut N) -> Result<Gathered, N::Error> {
        let mut blobs = self.kept;
        let kept = blobs.iter().map(|blob| blob.digest).collect();
        let mut placed: HashSet<Key> = places_in(&blobs).into_keys().collect();
        let mut growing = Growing::new(self.lengths)?;
        for needed in &self.needed {
            if placed.insert(needed.trimmed.key) {
                let content = growing.put(self.index, self.reader, needed, new)?;
                growing.end_if_due(&content, new)?;
            }
        }
        growing.end(new)?;
        blobs.extend(growing.blobs);
        blobs.sort_by_key(|blob| blob.digest);
        let index = index_of(self.index, &self.needed, &blobs)?;
        Ok(Gathered { index, blobs, kept })
    }
}

/// The blob that grows, and the blobs before it.
struct Growing {
    lengths: Lengths,
    compressor: Compressor,
    buffer: Buffer,
    bytes: u64,
    contents: Vec<Content>,
    blobs: Vec<BlobContents>,
}

impl Growing {
    fn new(lengths: Lengths) -> Result<Self, StoreError> {
        let impossible = |error: std::io::Error| StoreError::Impossible {
            what: format!("zstd cannot be used: {error}"),
        };
        Ok(Self {
            lengths,
            compressor: Compressor::new(LEVEL).map_err(impossible)?,
            buffer: Buffer::new(),
            bytes: 0,
            contents: Vec::new(),
            blobs: Vec::new(),
        })
    }

    fn put<N: NewBlobs>(
        &mut self,
        index: &Index,
        reader: &Reader,
        needed: &Needed<'_>,
        new: &mut N,
    ) -> Result<Content, N::Error> {
        let Needed { at, chunk, trimmed } = needed;
        let process = index.processes.get(at.0).ok_or_else(not_placed)?;
        let area = process.areas.get(at.1).ok_or_else(not_placed)?;
        // Verified again: another program may have changed the image since it was hashed.
        let loaded = reader.load(process.pid, area.start, chunk, &mut self.buffer)?;
        let pages = loaded.verified()?;
        let (_, parts) = trim(&chunk.pages, pages).ok_or_else(not_placed)?;
        let (hash, content_bytes) = trimmed.key;
        let mut content = Content {
            hash,
            content_bytes,
            offset: self.bytes,
            bytes: content_bytes,
            encoding: Encoding::Raw,
        };
        match self.compressor.compress(&parts) {
            Some(compressed) => {
                content.bytes = u32::try_from(compressed.bytes).unwrap_or(u32::MAX);
                content.encoding = Encoding::Zstd;
                new.append(compressed.padded)?;
                self.bytes += compressed.padded.len() as u64;
            }
            None => {
                for part in parts {
                    new.append(part)?;
                }
                self.bytes += u64::from(content_bytes);
            }
        }
        self.contents.push(content);
        Ok(content)
    }

    fn end_if_due<N: NewBlobs>(&mut self, last: &Content, new: &mut N) -> Result<(), N::Error> {
        match self.lengths.is_end(self.bytes, &last.hash) {
            true => self.end(new),
            false => Ok(()),
        }
    }

    fn end<N: NewBlobs>(&mut self, new: &mut N) -> Result<(), N::Error> {
        if self.contents.is_empty() {
            return Ok(());
        }
        self.blobs.push(BlobContents {
            digest: new.end()?,
            bytes: std::mem::take(&mut self.bytes),
            contents: std::mem::take(&mut self.contents),
        });
        Ok(())
    }
}

/// For each content: the number of its blob, and its place there.
type Places = HashMap<Key, (usize, Content)>;

fn places_in(blobs: &[BlobContents]) -> Places {
    let mut places = Places::new();
    for (number, blob) in blobs.iter().enumerate() {
        for content in &blob.contents {
            places.entry(key(content)).or_insert((number, *content));
        }
    }
    places
}

/// Makes the index with the blobs as packs.
fn index_of(
    index: &Index,
    needed: &[Needed<'_>],
    blobs: &[BlobContents],
) -> Result<Index, StoreError> {
    let places = places_in(blobs);
    let mut processes = index.processes.clone();
    let areas = processes.iter_mut().flat_map(|process| &mut process.areas);
    areas.for_each(|area| area.chunks.clear());
    for Needed { at, chunk, trimmed } in needed {
        let area = processes
            .get_mut(at.0)
            .and_then(|process| process.areas.get_mut(at.1));
        area.ok_or_else(not_placed)?.chunks.push(Chunk {
            number: chunk.number,
            pages: trimmed.pages.clone(),
            checksum: trimmed.checksum,
            place: place_of(&places, &trimmed.key).ok_or_else(not_placed)?,
        });
    }
    let packs = blobs.iter().map(|blob| pack_of(&blob.digest, blob.bytes));
    let packs: Option<Vec<Pack>> = packs.collect();
    let index = Index {
        // The memory stays that of the same checkpoint, which the manifest names.
        image_id: index.image_id,
        packs_in: PacksIn::Image,
        packs: packs.ok_or_else(not_placed)?,
        processes,
    };
    // The index has claims of the other side about its blobs.
    limits::check(&index).map_err(|what| StoreError::Impossible { what })?;
    Ok(index)
}

fn place_of(places: &Places, key: &Key) -> Option<ChunkLocation> {
    let (number, content) = places.get(key)?;
    Some(ChunkLocation {
        pack: u32::try_from(*number).ok()?,
        offset: PAGE as u64 + content.offset,
        bytes: content.bytes,
        encoding: content.encoding,
    })
}

fn not_placed() -> StoreError {
    StoreError::Impossible {
        what: "a chunk of the image is in none of its blobs".to_owned(),
    }
}
