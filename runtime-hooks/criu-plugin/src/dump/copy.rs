//! Copying memory out of the tasks and into the store, by many threads.

use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use stasis_memory_store::{Buffer, CHUNK, Chunk, StoredPages, Stream};

use crate::dump::drained::Counts;
use crate::dump::select::SelectedArea;
use crate::dump::source::{Piece, Source, pieces};
use crate::engine::progress::Progress;
use crate::error::{Error, caught};
use crate::fault_injection::{self, Point};

/// process_vm_readv(2) takes at most 1024 parts (UIO_MAXIOV).
const MOST_PARTS: usize = 512;

/// A piece that may be emptied, and where it is stored; nowhere if it holds nothing but zeros.
pub(crate) type Finished = (Piece, Option<Chunk>);

/// What all copying threads share.
pub(crate) struct Work<'a> {
    pub(crate) sources: &'a [Source],
    pieces: Vec<Piece>,
    next: AtomicUsize,
    stop: AtomicBool,
    progress: &'a Progress,
}

impl<'a> Work<'a> {
    pub(crate) fn new(sources: &'a [Source], progress: &'a Progress) -> Self {
        Self {
            sources,
            pieces: pieces(sources),
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            progress,
        }
    }

    pub(crate) fn area(&self, piece: Piece) -> &SelectedArea {
        &self.sources[piece.source].areas[piece.area]
    }

    /// A thread's work: copies pieces until there are none, and sends those that are done.
    pub(crate) fn copy(
        &self,
        stream: Stream<'_>,
        done: &SyncSender<Finished>,
    ) -> Result<Counts, Error> {
        // A panic is caught here, so that the other threads stop at once.
        let result = caught(|| self.copy_all(stream, done));
        if result.is_err() {
            self.stop();
        }
        result
    }

    /// No thread begins another piece.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn copy_all(
        &self,
        mut stream: Stream<'_>,
        done: &SyncSender<Finished>,
    ) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let mut buffer = Buffer::new();
        while !self.stop.load(Ordering::Relaxed) {
            let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let finished = self.copy_one(*piece, &mut stream, &mut buffer, &mut counts)?;
            // The receiver is gone if emptying failed.
            if let Some(finished) = finished
                && done.send(finished).is_err()
            {
                break;
            }
        }
        let report = stream.close()?;
        counts.stored = report.stored_bytes;
        counts.reused = report.reused_bytes;
        Ok(counts)
    }

    /// Stores a piece. `None`: it is left to CRIU, as it is empty or has pages that cannot be read.
    fn copy_one(
        &self,
        piece: Piece,
        stream: &mut Stream<'_>,
        buffer: &mut Buffer,
        counts: &mut Counts,
    ) -> Result<Option<Finished>, Error> {
        fault_injection::point(Point::Copy)?;
        let source = &self.sources[piece.source];
        let pid = source.task.pid;
        let (start, end) = self.area(piece).chunk(piece.number);
        let runs = source
            .pagemap
            .runs(start, end)
            .map_err(Error::task("see the pages of", pid))?;
        // Sparse areas can have millions of such chunks, and CRIU finds nothing in them either.
        if runs.is_empty() {
            return Ok(None);
        }
        let bytes = usize::try_from(end - start).unwrap_or(CHUNK);
        match read_runs(pid, start, &runs, &mut buffer.as_mut_slice()[..bytes]) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(None),
            other => other.map_err(Error::task("read the memory of", pid))?,
        }
        let present: u64 = runs.iter().map(|(start, end)| end - start).sum();
        counts.bytes += present;
        self.progress.add(present);
        let Some(pages) = StoredPages::of(&buffer.as_slice()[..bytes]) else {
            counts.zero += present;
            return Ok(Some((piece, None)));
        };
        counts.zero += present.saturating_sub(pages.bytes() as u64);
        let (checksum, place) = stream.put(buffer, &pages)?;
        let number = u32::try_from(piece.number).map_err(|_| Error::TooLarge { pid })?;
        let chunk = Chunk {
            number,
            pages,
            checksum,
            place,
        };
        Ok(Some((piece, Some(chunk))))
    }
}

/// Reads runs of pages to their places in the buffer, which stands for the chunk at `start`, and
/// clears what lies between them.
fn read_runs(pid: i32, start: u64, runs: &[(u64, u64)], mut buffer: &mut [u8]) -> io::Result<()> {
    let mut at = start;
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    let length = |from: u64, to: u64| usize::try_from(to - from).unwrap_or(0);
    for &(from, to) in runs {
        let (hole, rest) = buffer.split_at_mut(length(at, from));
        hole.fill(0);
        let (run, rest) = rest.split_at_mut(length(from, to));
        remote.push(RemoteIoVec {
            base: usize::try_from(from).unwrap_or(0),
            len: run.len(),
        });
        local.push(IoSliceMut::new(run));
        (buffer, at) = (rest, to);
    }
    buffer.fill(0);
    let mut local = local.into_iter();
    for part in remote.chunks(MOST_PARTS) {
        let mut targets: Vec<_> = local.by_ref().take(part.len()).collect();
        let wanted: usize = part.iter().map(|one| one.len).sum();
        let read = process_vm_readv(Pid::from_raw(pid), &mut targets, part)?;
        // The kernel stops at the first page that cannot be read.
        if read != wanted {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use stasis_memory_store::{PAGE, Writer};

    use super::*;
    use crate::dump::give_back::tests::request;
    use crate::tasks::tree::Task;
    use stasis_linux::pagemap::Pagemap;

    #[test]
    fn a_chunk_without_pages_is_not_work() {
        // Not touched, so the kernel has mapped no page.
        let mut memory: Vec<u8> = Vec::with_capacity(3 * CHUNK);
        let start = (memory.as_ptr().expose_provenance() as u64).next_multiple_of(PAGE as u64);
        let pid = i32::try_from(std::process::id()).unwrap();
        let sources = [Source {
            task: Task {
                pid,
                pid_inside: pid,
            },
            areas: vec![SelectedArea {
                start,
                end: start + 2 * CHUNK as u64,
                left: Vec::new(),
                is_locked: false,
                bytes: 0,
            }],
            pagemap: Pagemap::open(pid).unwrap(),
        }];
        let image = tempfile::tempdir().unwrap();
        let writer = Writer::create(image.path(), &request()).unwrap();
        let progress = Progress::new(None, 0);
        let copy = |number| {
            let work = Work::new(&sources, &progress);
            let (mut stream, mut buffer) = (writer.stream().unwrap(), Buffer::new());
            let mut counts = Counts::default();
            let piece = work.pieces[number];
            let finished = work.copy_one(piece, &mut stream, &mut buffer, &mut counts);
            (finished.unwrap().is_some(), counts.bytes)
        };
        assert_eq!(copy(1), (false, 0));
        memory.resize(2 * PAGE, 1);
        let (is_stored, bytes) = copy(0);
        assert!(is_stored && bytes > 0, "{bytes}");
    }
}
