//! Large files of CRIU as memory that is put into blobs: an index that has each file as a process,
//! and each piece of it as an area, at its offset.
//!
//! CRIU's `pages-*.img` are pages of memory, one after the other. Another replica has many of the
//! same pages at other offsets. So a piece ends after a page whose own contents decide it: the same
//! pages make the same pieces wherever they are.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use stasis_linux::file;

use crate::file_contents::queue::for_each;
use crate::pack::PackFile;
use crate::reader::{fill, is_damage};
use crate::{
    Area, Buffer, CHUNK, Checksum, Chunk, ChunkLocation, Encoding, ImageId, Index, PAGE, PacksIn,
    ProcessMemory, Reader, StoreError, StoredPages,
};

/// Bytes that a thread cuts in one go: a piece ends there as well.
const SEGMENT: u64 = 64 << 20;
/// Average pages of a piece, and bytes of files for which that is enough: it makes 2^18 pieces.
const PAGES: u64 = 16;
const ENOUGH: u64 = 16 << 30;
/// The most doublings of a piece: four times as many pages are the most, which is a chunk.
const MOST_DOUBLINGS: u32 = 4;

/// A file of an image: of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeFile<'a> {
    /// Its number in the index, from 1 on.
    pub number: i32,
    /// Its name, without a slash.
    pub name: &'a str,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Cuts files of a directory, on `threads` threads, into the input of a [`Plan`](crate::Plan).
pub fn split_files(
    directory: &Path,
    files: &[LargeFile<'_>],
    threads: usize,
) -> Result<(Index, Reader), StoreError> {
    let opened = files.iter().map(|large| open(directory, large));
    let opened: Vec<_> = opened.collect::<Result<_, _>>()?;
    let cut = Cut::of(files.iter().map(|large| large.bytes).sum());
    let mut segments = Vec::new();
    for (number, large) in files.iter().enumerate() {
        let starts = (0..large.bytes.div_ceil(SEGMENT)).map(|segment| segment * SEGMENT);
        segments.extend(starts.map(|start| Segment {
            file: number,
            range: start..large.bytes.min(start + SEGMENT),
        }));
    }
    let areas = for_each(&segments, threads, |segment, buffer| {
        segment.split(&opened[segment.file], &cut, buffer)
    })?;
    let mut processes: Vec<_> = files.iter().map(process).collect();
    for (segment, areas) in segments.iter().zip(areas) {
        processes[segment.file].areas.extend(areas);
    }
    let index = Index {
        // Only the image whose manifest names the files has this index.
        image_id: ImageId::new(0),
        packs_in: PacksIn::Image,
        packs: Vec::new(),
        processes,
    };
    Ok((index, Reader::of(opened)))
}

fn process(large: &LargeFile<'_>) -> ProcessMemory {
    ProcessMemory {
        pid: large.number,
        areas: Vec::new(),
    }
}

fn open(directory: &Path, large: &LargeFile<'_>) -> Result<Arc<PackFile>, StoreError> {
    let path = directory.join(large.name);
    let opened = file::open(&path).map_err(StoreError::io("open", &path))?;
    let Some(file) = opened else {
        return Err(StoreError::Missing { path });
    };
    Ok(Arc::new(PackFile::new(path, file)))
}

/// A part of a file, with the number of its file among those that are cut.
struct Segment {
    file: usize,
    range: Range<u64>,
}

impl Segment {
    fn split(
        &self,
        file: &PackFile,
        cut: &Cut,
        buffer: &mut Buffer,
    ) -> Result<Vec<Area>, StoreError> {
        let buffer = buffer.as_mut_slice();
        let mut areas = Vec::new();
        let (mut at, mut start, mut end) = (self.range.start, 0, 0);
        while at < self.range.end {
            let left = usize::try_from(self.range.end - at).unwrap_or(usize::MAX);
            if end - start < left.min(cut.most) {
                buffer.copy_within(start..end, 0);
                (start, end) = (0, end - start);
                let more = end..buffer.len().min(left);
                let read = fill(file, at + end as u64, &mut buffer[more.clone()]);
                read.map_err(|error| match is_damage(&error) {
                    true => StoreError::damaged(&file.path, error.to_string()),
                    false => StoreError::io("read", &file.path)(error),
                })?;
                end = more.end;
            }
            let piece = cut.first(&buffer[start..end]);
            areas.push(self.area(at, piece));
            start += piece.len();
            at += piece.len() as u64;
        }
        Ok(areas)
    }

    fn area(&self, at: u64, piece: &[u8]) -> Area {
        let pack = u32::try_from(self.file).unwrap_or(u32::MAX);
        // At most a chunk.
        let bytes = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        let pages = u16::try_from(piece.len() / PAGE).unwrap_or(u16::MAX);
        let chunk = Chunk {
            number: 0,
            pages: StoredPages::All(pages),
            checksum: Checksum::of(piece),
            place: ChunkLocation {
                pack,
                offset: at,
                bytes,
                encoding: Encoding::Raw,
            },
        };
        Area {
            start: at,
            bytes: u64::from(bytes),
            chunks: vec![chunk],
        }
    }
}

/// Where pieces end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    /// No piece is shorter, but for the last of a segment.
    least: usize,
    most: usize,
    /// A page ends a piece if its checksum has none of these bits.
    mark: u128,
}

impl Cut {
    /// Chooses the lengths for this many bytes: the list of contents stays short.
    fn of(bytes: u64) -> Self {
        let times = bytes.div_ceil(ENOUGH).max(1);
        let doublings = times.next_power_of_two().ilog2().min(MOST_DOUBLINGS);
        let pages = PAGES << doublings;
        // At most a chunk.
        let length = |pages: u64| usize::try_from(pages).map_or(CHUNK, |pages| pages * PAGE);
        Self {
            least: length(pages / 4),
            most: length(pages * 4),
            mark: u128::from(pages - 1),
        }
    }

    /// Returns the first piece of these pages.
    fn first<'p>(&self, pages: &'p [u8]) -> &'p [u8] {
        let most = pages.len().min(self.most);
        let is_end = |end: &usize| {
            let last = pages.get(end - PAGE..*end);
            last.is_some_and(|last| Checksum::of(last).0 & self.mark == 0)
        };
        let end = (self.least..most).step_by(PAGE).find(is_end);
        pages.get(..end.unwrap_or(most)).unwrap_or(pages)
    }
}

#[cfg(test)]
mod tests;
