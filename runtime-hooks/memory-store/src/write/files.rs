//! Storing contents that lie in files in memory.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::Mmap;

use crate::file_contents::FileContents;
use crate::file_contents::pieces::{PIECE, Pieces, share_out};
use crate::pack::mapping;
use crate::write::in_place::InPlace;
use crate::{Area, CHUNK, Chunk, CriuHas, ProcessMemory, StoreError, Stream, StreamReport, Writer};

/// Contents that can be read.
struct Source {
    pid: i32,
    mapped: Mmap,
    /// Where they are stored already.
    in_place: Option<InPlace>,
    /// Its chunks are filled in when all threads have ended.
    area: Area,
}

/// Neighbouring chunks of a source.
struct Piece {
    source: usize,
    numbers: Range<u32>,
}

/// A chunk and the number of its source.
type Stored = (usize, Chunk);

impl Writer {
    /// Stores contents by so many threads, each with a stream of its own, and adds the bytes of
    /// contents that are done to `progress`. Those whose file is a pack of this store
    /// ([`create_pack`](crate::create_pack)) stay where they are, unless an earlier checkpoint has
    /// most of them. Returns the processes for [`Self::finish`]: what is in
    /// a file is a hole for CRIU.
    ///
    /// Nobody may write to the files meanwhile, nor make them shorter.
    ///
    /// # Errors
    /// [`StoreError`] of the first thread that failed; the others have ended. What was stored is
    /// removed with the writer.
    pub fn store_files(
        &self,
        contents: &[FileContents<'_>],
        threads: NonZeroUsize,
        progress: &AtomicU64,
    ) -> Result<(Vec<ProcessMemory>, StreamReport), StoreError> {
        let sources = contents.iter().map(|contents| Source::of(self, contents));
        let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
        self.leave_to_earlier(&mut sources, threads)?;
        let mut pieces = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            pieces.extend(source.pieces(number)?);
        }
        let done = share_out(&pieces, threads, |pieces| {
            self.store_pieces(&sources, pieces, progress)
        })?;
        let mut report = StreamReport::default();
        for (chunks, own) in done {
            report.stored_bytes += own.stored_bytes;
            report.reused_bytes += own.reused_bytes;
            for (source, chunk) in chunks {
                sources[source].area.chunks.push(chunk);
            }
        }
        Ok((processes(sources), report))
    }

    /// What an earlier checkpoint has for the most part does not stay where it is.
    fn leave_to_earlier(
        &self,
        sources: &mut [Source],
        threads: NonZeroUsize,
    ) -> Result<(), StoreError> {
        let contents = sources.iter().map(|source| &source.mapped[..]);
        let contents: Vec<_> = contents.collect();
        let known = self.mostly_known(&contents, threads)?;
        for (source, _) in sources.iter_mut().zip(known).filter(|(_, known)| *known) {
            source.in_place = None;
        }
        Ok(())
    }

    /// The work of one thread.
    fn store_pieces(
        &self,
        sources: &[Source],
        pieces: &Pieces<'_, Piece>,
        progress: &AtomicU64,
    ) -> Result<(Vec<Stored>, StreamReport), StoreError> {
        let mut stream = self.stream()?;
        let mut in_place = StreamReport::default();
        let mut stored = Vec::new();
        while let Some(piece) = pieces.take() {
            let source = &sources[piece.source];
            for number in piece.numbers.clone() {
                let content = source.content(number);
                let chunk = match source.in_place {
                    Some(place) => {
                        in_place.stored_bytes += content.len() as u64;
                        Some(place.chunk(number, content))
                    }
                    None => self.put_file(&mut stream, number, content)?,
                };
                stored.extend(chunk.map(|chunk| (piece.source, chunk)));
                progress.fetch_add(content.len() as u64, Ordering::Relaxed);
            }
        }
        let mut report = stream.close()?;
        report.stored_bytes += in_place.stored_bytes;
        Ok((stored, report))
    }

    /// `None`: it is all zero.
    fn put_file(
        &self,
        stream: &mut Stream<'_>,
        number: u32,
        content: &[u8],
    ) -> Result<Option<Chunk>, StoreError> {
        let Some(pages) = self.pages_of(content) else {
            return Ok(None);
        };
        let (checksum, place) = stream.put_pages(content, &pages)?;
        Ok(Some(Chunk {
            number,
            pages,
            checksum,
            place,
        }))
    }
}

impl Source {
    fn of(writer: &Writer, contents: &FileContents<'_>) -> Result<Self, StoreError> {
        contents.check()?;
        let mapped = mapping::map_part(contents.file, contents.offset, contents.bytes);
        let mapped = mapped.map_err(contents.failed("map"))?;
        Ok(Self {
            pid: contents.pid,
            in_place: writer.in_place(contents)?,
            mapped,
            area: Area {
                start: contents.start,
                bytes: contents.bytes,
                criu_has: CriuHas::Hole,
                chunks: Vec::new(),
            },
        })
    }

    fn pieces(&self, source: usize) -> Result<impl Iterator<Item = Piece>, StoreError> {
        let chunks = self.area.bytes.div_ceil(CHUNK as u64);
        let chunks = u32::try_from(chunks).map_err(|_| StoreError::Impossible {
            what: format!("{} bytes are too many for an area", self.area.bytes),
        })?;
        let starts = (0..chunks).step_by(PIECE.into());
        Ok(starts.map(move |start| Piece {
            source,
            numbers: start..chunks.min(start.saturating_add(PIECE.into())),
        }))
    }

    fn content(&self, number: u32) -> &[u8] {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        self.mapped.chunks(CHUNK).nth(number).unwrap_or_default()
    }
}

/// The processes of these areas, all in order.
fn processes(mut sources: Vec<Source>) -> Vec<ProcessMemory> {
    sources.sort_by_key(|source| (source.pid, source.area.start));
    let mut processes: Vec<ProcessMemory> = Vec::new();
    for Source { pid, mut area, .. } in sources {
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
