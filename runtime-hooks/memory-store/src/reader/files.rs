//! Loads contents into files in memory.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;

use crate::file_contents::queue::{Worker, share_out};
use crate::file_contents::{FileContents, PIECE};
use crate::pack::mapping::map_part_to_write;
use crate::reader::progress::{Front, LoadProgress};
use crate::{Area, Buffer, CHUNK, Chunk, ProcessMemory, Reader, Run, StoreError};

/// Bytes that are verified and then written while they are still in a core's cache.
const PART: usize = 256 << 10;

/// Adjacent chunks of an area, for one thread.
struct Piece<'a> {
    /// The number of its file, in the order in which they were given, and of the piece in it.
    index: usize,
    number: usize,
    contents: &'a FileContents<'a>,
    area: &'a Area,
    chunks: Vec<Loading<'a>>,
}

struct Loading<'a> {
    chunk: &'a Chunk,
    /// `None`: the file has the chunk already.
    place: Option<&'a mut [u8]>,
}

impl Reader {
    /// Fills new files, which have only zeros, with the contents of all holes of these processes,
    /// on `threads` threads. Contents that are [`Self::in_place`] are only read and verified.
    /// Reports to `progress` what is done, which for each file proceeds from its beginning.
    ///
    /// Everything is verified once this has succeeded; after a failure a file may have damaged
    /// contents.
    ///
    /// # Errors
    /// [`StoreError`] of the first thread that failed; the others have ended. A hole without a file
    /// is an error, and a file without a hole.
    pub fn load_files(
        &self,
        processes: &[ProcessMemory],
        contents: &[FileContents<'_>],
        threads: NonZeroUsize,
        progress: &dyn LoadProgress,
    ) -> Result<(), StoreError> {
        let mut targets = Vec::new();
        for (index, contents, area) in pairs(processes, contents)? {
            contents.check()?;
            let mapped = match self.has_in_place(contents, area) {
                true => None,
                false => {
                    let mapped = map_part_to_write(contents.file, contents.offset, contents.bytes);
                    Some(mapped.map_err(contents.failed("map"))?)
                }
            };
            targets.push((index, contents, area, mapped));
        }
        let mut pieces = Vec::new();
        let mut fronts = BTreeMap::new();
        for (index, contents, area, mapped) in &mut targets {
            let stored = area.chunks.iter().map(|chunk| length(area, chunk));
            let zeros = area.bytes.saturating_sub(stored.sum());
            progress.loaded(zeros);
            fronts.insert(*index, Front::new(ends_of(area)));
            pieces.extend(pieces_of(*index, contents, area, mapped.as_deref_mut())?);
        }
        share_out(pieces.into_iter(), threads, |pieces| {
            self.load_pieces(pieces, &fronts, progress)
        })?;
        Ok(())
    }

    /// The work of one thread.
    fn load_pieces(
        &self,
        pieces: &Worker<'_, Piece<'_>>,
        fronts: &BTreeMap<usize, Front>,
        progress: &dyn LoadProgress,
    ) -> Result<(), StoreError> {
        let mut buffer = Buffer::new();
        while let Some(piece) = pieces.take() {
            let Piece { contents, area, .. } = piece;
            for Loading { chunk, place } in piece.chunks {
                let loaded = self.load(contents.pid, area.start, chunk, &mut buffer)?;
                match place {
                    Some(place) => loaded.hand_on(PART, |part, runs| write(place, part, runs))?,
                    None => drop(loaded.verified()?),
                }
                progress.loaded(length(area, chunk));
            }
            if let Some(front) = fronts.get(&piece.index) {
                front.done(piece.number, |end| progress.loaded_up_to(piece.index, end));
            }
        }
        Ok(())
    }
}

/// Cuts the chunks of an area into pieces; `mapped` is the memory to load them into, if any.
fn pieces_of<'a>(
    index: usize,
    contents: &'a FileContents<'a>,
    area: &'a Area,
    mapped: Option<&'a mut [u8]>,
) -> Result<Vec<Piece<'a>>, StoreError> {
    let mut places = mapped.map(|mapped| (0..).zip(mapped.chunks_mut(CHUNK)));
    let mut pieces = Vec::new();
    for (number, chunks) in area.chunks.chunks(PIECE.into()).enumerate() {
        let with_place = chunks.iter().map(|chunk| {
            let Some(places) = &mut places else {
                return Ok(Loading { chunk, place: None });
            };
            let place = places.find(|(number, _)| *number == chunk.number);
            let (_, place) = place.ok_or_else(|| StoreError::Impossible {
                what: format!(
                    "the area at {:#x} has no chunk {}",
                    area.start, chunk.number
                ),
            })?;
            let place = Some(place);
            Ok(Loading { chunk, place })
        });
        pieces.push(Piece {
            index,
            number,
            contents,
            area,
            chunks: with_place.collect::<Result<_, StoreError>>()?,
        });
    }
    Ok(pieces)
}

/// The ends of an area's pieces: each where the next begins, since pages not stored are zeros.
fn ends_of(area: &Area) -> impl Iterator<Item = u64> {
    let begins = area.chunks.chunks(PIECE.into()).skip(1);
    let begins = begins.filter_map(|chunks| chunks.first());
    let begin = |chunk: &Chunk| u64::from(chunk.number) * CHUNK as u64;
    begins.map(begin).chain([area.bytes])
}

/// Pairs each hole with its file, and the number of that among all.
fn pairs<'a>(
    processes: &'a [ProcessMemory],
    contents: &'a [FileContents<'a>],
) -> Result<Vec<(usize, &'a FileContents<'a>, &'a Area)>, StoreError> {
    let mut pairs = Vec::with_capacity(contents.len());
    for process in processes {
        for area in &process.areas {
            let mut own = contents.iter().enumerate();
            let own = own.find(|(_, each)| each.are_of(process.pid, area));
            let (index, found) = own.ok_or(StoreError::NoFile {
                process: process.pid,
                area: area.start,
            })?;
            pairs.push((index, found, area));
        }
    }
    let is_used =
        |each: &&FileContents<'_>| pairs.iter().any(|(_, used, _)| std::ptr::eq(*used, *each));
    match contents.iter().find(|each| !is_used(each)) {
        None => Ok(pairs),
        Some(more) => Err(more.failed("fill")(io::Error::other(
            "the index has no such hole",
        ))),
    }
}

/// The length of a chunk with its zero pages, bytes.
fn length(area: &Area, chunk: &Chunk) -> u64 {
    area.chunk_bytes(chunk.number) as u64
}

/// Writes pages of a chunk to its place.
fn write(place: &mut [u8], mut part: &[u8], runs: &[Run]) -> Result<(), StoreError> {
    for run in runs {
        let (own, rest) = part.split_at(run.bytes);
        let target = place.get_mut(run.offset..run.offset + run.bytes);
        let target = target.ok_or_else(|| StoreError::Impossible {
            what: format!(
                "{} bytes at {} are not in their chunk",
                run.bytes, run.offset
            ),
        })?;
        target.copy_from_slice(own);
        part = rest;
    }
    Ok(())
}
