//! Loading contents into files in memory.

use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::file_contents::FileContents;
use crate::file_contents::pieces::{PIECE, Pieces, share_out};
use crate::{Area, Buffer, CHUNK, Chunk, CriuHas, ProcessMemory, Reader, Run, StoreError};

/// Bytes that are verified and then written while they are still in a core's cache.
const PART: usize = 256 << 10;

/// Chunks of an area that follow each other.
struct Piece<'a> {
    contents: &'a FileContents<'a>,
    area: &'a Area,
    chunks: &'a [Chunk],
}

impl Reader {
    /// Fills new files, which hold nothing but zeros, with the contents of all holes of these
    /// processes, by so many threads. Adds the bytes of contents that are done to `progress`.
    ///
    /// Everything is verified once this has succeeded; a file holds what was damaged as well if it
    /// has not.
    ///
    /// # Errors
    /// [`StoreError`] of the first thread that failed; the others have ended. A hole without a file
    /// is one, and a file without a hole.
    pub fn load_files(
        &self,
        processes: &[ProcessMemory],
        contents: &[FileContents<'_>],
        threads: NonZeroUsize,
        progress: &AtomicU64,
    ) -> Result<(), StoreError> {
        let mut pieces = Vec::new();
        for (contents, area) in pairs(processes, contents)? {
            contents.check()?;
            let stored = area.chunks.iter().map(|chunk| length(area, chunk));
            let zeros = area.bytes.saturating_sub(stored.sum());
            progress.fetch_add(zeros, Ordering::Relaxed);
            pieces.extend(area.chunks.chunks(PIECE.into()).map(|chunks| Piece {
                contents,
                area,
                chunks,
            }));
        }
        share_out(&pieces, threads, |pieces| {
            self.load_pieces(pieces, progress)
        })?;
        Ok(())
    }

    /// The work of one thread.
    fn load_pieces(
        &self,
        pieces: &Pieces<'_, Piece<'_>>,
        progress: &AtomicU64,
    ) -> Result<(), StoreError> {
        let mut buffer = Buffer::new();
        while let Some(piece) = pieces.take() {
            let Piece { contents, area, .. } = *piece;
            for chunk in piece.chunks {
                let loaded = self.load(contents.pid, area.start, chunk, &mut buffer)?;
                let start = contents.offset + u64::from(chunk.number) * CHUNK as u64;
                loaded.hand_on(PART, |part, runs| {
                    write(contents, start, part, runs).map_err(contents.failed("write"))
                })?;
                progress.fetch_add(length(area, chunk), Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Each hole with its file.
fn pairs<'a>(
    processes: &'a [ProcessMemory],
    contents: &'a [FileContents<'a>],
) -> Result<Vec<(&'a FileContents<'a>, &'a Area)>, StoreError> {
    let mut pairs = Vec::with_capacity(contents.len());
    for process in processes {
        let holes = process.areas.iter();
        for area in holes.filter(|area| area.criu_has == CriuHas::Hole) {
            let mut own = contents
                .iter()
                .filter(|each| each.are_of(process.pid, area));
            let found = own.next().ok_or(StoreError::NoFile {
                process: process.pid,
                area: area.start,
            })?;
            pairs.push((found, area));
        }
    }
    let is_used =
        |each: &&FileContents<'_>| pairs.iter().any(|(used, _)| std::ptr::eq(*used, *each));
    match contents.iter().find(|each| !is_used(each)) {
        None => Ok(pairs),
        Some(more) => Err(more.failed("fill")(io::Error::other(
            "the index has no such hole",
        ))),
    }
}

/// Of a chunk with its zero pages, bytes.
fn length(area: &Area, chunk: &Chunk) -> u64 {
    area.chunk_bytes(chunk.number) as u64
}

/// Writes pages of the chunk that begins at `start` in the file.
fn write(contents: &FileContents<'_>, start: u64, mut part: &[u8], runs: &[Run]) -> io::Result<()> {
    for run in runs {
        let (own, rest) = part.split_at(run.bytes);
        contents.file.write_all_at(own, start + run.offset as u64)?;
        part = rest;
    }
    Ok(())
}
