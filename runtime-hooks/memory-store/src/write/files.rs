//! Stores contents that lie in files in memory.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::Mmap;

use crate::file_contents::queue::{Queue, Worker, share_out_coming};
use crate::file_contents::{FileContents, PIECE};
use crate::pack::mapping;
use crate::write::in_place::InPlace;
use crate::write::stream::Stream;
use crate::{Area, CHUNK, Chunk, ProcessMemory, StoreError, StoredPages, StreamReport, Writer};

/// Contents that can be read.
#[derive(Debug)]
struct Source {
    /// Number among all contents that have come.
    number: usize,
    pid: i32,
    start: u64,
    bytes: u64,
    mapped: Mmap,
    /// Place where they are stored already.
    in_place: Option<InPlace>,
}

/// Neighbouring chunks of a source.
#[derive(Debug)]
struct Piece {
    source: Arc<Source>,
    numbers: Range<u32>,
}

/// A chunk and the number of its source.
type Stored = (usize, Chunk);

/// Contents that are stored while more of them come ([`Writer::store_coming`]).
#[derive(Debug)]
pub struct Coming<'w> {
    writer: &'w Writer,
    queue: &'w Queue<Piece>,
    sources: &'w Mutex<Vec<Arc<Source>>>,
}

impl Writer {
    /// Stores contents that `bring` adds meanwhile, on `threads` threads, each with a stream of its
    /// own, and adds the bytes of contents that are done to `progress`. Contents whose file is a
    /// pack of this store ([`create_pack`](crate::create_pack)) stay where they are. Returns the
    /// processes for [`Self::finish`]: contents in a file are a hole for CRIU.
    ///
    /// No process may write to the files meanwhile, nor make them shorter.
    ///
    /// # Errors
    /// The errors of `bring`; [`StoreError`] of the first thread that failed: the others have
    /// ended. The stored contents are removed with the writer.
    pub fn store_coming<E: From<StoreError>>(
        &self,
        threads: NonZeroUsize,
        progress: &AtomicU64,
        bring: impl FnOnce(&Coming<'_>) -> Result<(), E>,
    ) -> Result<(Vec<ProcessMemory>, StreamReport), E> {
        let sources = Mutex::default();
        let work = |worker: &Worker<'_, Piece>| self.store_pieces(worker, progress);
        let done = share_out_coming(threads, work, |queue| {
            bring(&Coming {
                writer: self,
                queue,
                sources: &sources,
            })
        })?;
        let sources = sources.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut areas: Vec<_> = sources.iter().map(|source| source.area()).collect();
        let mut report = StreamReport::default();
        for (chunks, own) in done {
            report.stored_bytes += own.stored_bytes;
            report.reused_bytes += own.reused_bytes;
            for (source, chunk) in chunks {
                areas[source].1.chunks.push(chunk);
            }
        }
        Ok((processes(areas), report))
    }

    /// The work of one thread.
    fn store_pieces(
        &self,
        pieces: &Worker<'_, Piece>,
        progress: &AtomicU64,
    ) -> Result<(Vec<Stored>, StreamReport), StoreError> {
        let mut stream = self.stream()?;
        let mut in_place = StreamReport::default();
        let mut stored = Vec::new();
        while let Some(Piece { source, numbers }) = pieces.take() {
            for number in numbers {
                let content = source.content(number);
                let chunk = match &source.in_place {
                    Some(place) => {
                        in_place.stored_bytes += content.len() as u64;
                        Some(place.chunk(number, content))
                    }
                    None => self.put_file(&mut stream, number, content)?,
                };
                stored.extend(chunk.map(|chunk| (source.number, chunk)));
                progress.fetch_add(content.len() as u64, Ordering::Relaxed);
            }
        }
        let mut report = stream.close()?;
        report.stored_bytes += in_place.stored_bytes;
        Ok((stored, report))
    }

    /// Stores a chunk; `None`: it is all zero.
    fn put_file(
        &self,
        stream: &mut Stream<'_>,
        number: u32,
        content: &[u8],
    ) -> Result<Option<Chunk>, StoreError> {
        let Some(pages) = StoredPages::of(content) else {
            return Ok(None);
        };
        let (checksum, place) = stream.put(content, &pages)?;
        Ok(Some(Chunk {
            number,
            pages,
            checksum,
            place,
        }))
    }
}

impl Coming<'_> {
    /// Adds contents, and sets the number of threads that store from now on.
    pub fn add(
        &self,
        contents: &FileContents<'_>,
        at_work: NonZeroUsize,
    ) -> Result<(), StoreError> {
        let source = Source::of(self.writer, self.sources().len(), contents, at_work)?;
        let source = Arc::new(source);
        self.sources().push(Arc::clone(&source));
        self.queue.add(source.pieces()?, at_work);
        Ok(())
    }

    fn sources(&self) -> MutexGuard<'_, Vec<Arc<Source>>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    fn of(
        writer: &Writer,
        number: usize,
        contents: &FileContents<'_>,
        threads: NonZeroUsize,
    ) -> Result<Self, StoreError> {
        contents.check()?;
        let mapped = mapping::map_part(contents.file, contents.offset, contents.bytes);
        let mapped = mapped.map_err(contents.failed("map"))?;
        Ok(Self {
            number,
            pid: contents.pid,
            start: contents.start,
            bytes: contents.bytes,
            in_place: writer.in_place(contents, &mapped, threads)?,
            mapped,
        })
    }

    fn pieces(self: Arc<Self>) -> Result<impl Iterator<Item = Piece>, StoreError> {
        let chunks = self.bytes.div_ceil(CHUNK as u64);
        let chunks = u32::try_from(chunks).map_err(|_| StoreError::Impossible {
            what: format!("{} bytes are too many for an area", self.bytes),
        })?;
        let starts = (0..chunks).step_by(PIECE.into());
        Ok(starts.map(move |start| Piece {
            source: Arc::clone(&self),
            numbers: start..chunks.min(start.saturating_add(PIECE.into())),
        }))
    }

    fn content(&self, number: u32) -> &[u8] {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        self.mapped.chunks(CHUNK).nth(number).unwrap_or_default()
    }

    /// Returns the pid of its process, and its area, whose chunks are not known yet.
    fn area(&self) -> (i32, Area) {
        let area = Area {
            start: self.start,
            bytes: self.bytes,
            chunks: Vec::new(),
        };
        (self.pid, area)
    }
}

/// The processes of these areas, all in order.
fn processes(mut areas: Vec<(i32, Area)>) -> Vec<ProcessMemory> {
    areas.sort_by_key(|(pid, area)| (*pid, area.start));
    let mut processes: Vec<ProcessMemory> = Vec::new();
    for (pid, mut area) in areas {
        area.chunks.sort_by_key(|chunk| chunk.number);
        match processes.last_mut() {
            Some(process) if process.pid == pid => process.areas.push(area),
            _ => processes.push(ProcessMemory {
                pid,
                areas: vec![area],
            }),
        }
    }
    processes
}
