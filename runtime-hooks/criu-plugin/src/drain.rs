//! Memory out of the tasks and into the store: copied by many threads, emptied behind them by the tasks themselves, so that there is
//! hardly ever more than one copy of anything.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use stasis_memory_store::{
    Area, Buffer, CHUNK, Chunk, Lane, PAGE, ProcessMemory, StoredPages, Writer,
};
use stasis_remote_call::TracedThread;

use crate::areas::TakenArea;
use crate::error::Error;
use crate::pagemap::Pagemap;
use crate::progress::Progress;
use crate::tree::Task;

/// What a task empties in one go: much for a system call, little beside the whole.
const BATCH: u64 = 64 << 20;
/// More than the kernel takes at once is given in parts.
const MOST_PARTS: usize = 512;
/// As `MADV_DONTNEED`, for memory that is locked (Linux 5.18).
const MADV_DONTNEED_LOCKED: u64 = 24;

/// A task and what is taken of it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) task: Task,
    pub(crate) areas: Vec<TakenArea>,
}

impl Source {
    /// Start and end addresses of what is taken.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for area in &self.areas {
            for number in area.chunks().filter(|number| !area.left.contains(number)) {
                let (start, end) = area.chunk(number);
                match ranges.last_mut() {
                    Some(last) if last.1 == start => last.1 = end,
                    _ => ranges.push((start, end)),
                }
            }
        }
        ranges
    }
}

/// What has been taken so far; also after a failure.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// By source and area.
    chunks: BTreeMap<(usize, usize), Vec<Chunk>>,
    /// Start and end address, by source.
    emptied: Vec<(usize, u64, u64)>,
    pub(crate) bytes: u64,
    pub(crate) zero_bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) reused_bytes: u64,
    pub(crate) empty_time: Duration,
}

/// One chunk of the work.
#[derive(Debug, Clone, Copy)]
struct Piece {
    source: usize,
    area: usize,
    number: u64,
}

/// Drains all sources, with a thread for each lane. `tracees` are the sources' threads, `guard` looks after the tasks. What could be done
/// before a failure is in `Taken`, too.
pub(crate) fn drain(
    sources: &[Source],
    tracees: &mut [TracedThread],
    lanes: Vec<Lane<'_>>,
    guard: &mut Guard,
    progress: &Progress,
) -> (Taken, Result<(), Error>) {
    let work = Work {
        sources,
        pieces: pieces(sources),
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        progress,
    };
    let mut taken = Taken::default();
    let result = thread::scope(|scope| {
        // As much as a batch, so that nobody runs far ahead of the emptying.
        let (done, finished) = sync_channel(AHEAD);
        let workers: Vec<_> = lanes
            .into_iter()
            .map(|lane| {
                let (work, done) = (&work, done.clone());
                scope.spawn(move || work.copy(lane, &done))
            })
            .collect();
        drop(done);
        let mut result = empty_behind(&work, finished, tracees, guard, &mut taken);
        for worker in workers {
            let counted = worker.join().unwrap_or(Err(Error::Panic));
            result = result.and(counted.map(|counts| taken.counts += counts));
        }
        result
    });
    (taken, result)
}

fn pieces(sources: &[Source]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (source, tasks) in sources.iter().enumerate() {
        for (area, taken) in tasks.areas.iter().enumerate() {
            let ours = taken.chunks().filter(|number| !taken.left.contains(number));
            pieces.extend(ours.map(|number| Piece {
                source,
                area,
                number,
            }));
        }
    }
    pieces
}

/// What all threads share.
struct Work<'a> {
    sources: &'a [Source],
    pieces: Vec<Piece>,
    next: AtomicUsize,
    stop: AtomicBool,
    progress: &'a Progress,
}

/// What one thread copied.
#[derive(Debug, Default)]
struct Copied {
    chunks: Vec<(Piece, Chunk)>,
    bytes: u64,
    zero_bytes: u64,
    stored_bytes: u64,
    reused_bytes: u64,
}

impl Work<'_> {
    fn area(&self, piece: Piece) -> &TakenArea {
        &self.sources[piece.source].areas[piece.area]
    }

    /// A thread's work: copies pieces until there are none, and says which are done.
    fn copy(&self, writer: &Writer, done: &Sender<Piece>) -> (Copied, Result<(), Error>) {
        let mut copied = Copied::default();
        // What was copied before a panic may be the only copy by now.
        let work = AssertUnwindSafe(|| self.copy_all(writer, done, &mut copied));
        let result = catch_unwind(work).unwrap_or(Err(Error::Panic));
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        (copied, result)
    }

    fn copy_all(
        &self,
        writer: &Writer,
        done: &Sender<Piece>,
        copied: &mut Copied,
    ) -> Result<(), Error> {
        let mut lane = writer.lane()?;
        let mut buffer = Buffer::new();
        let pagemaps = self.pagemaps()?;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            if self.copy_one(
                *piece,
                &pagemaps[piece.source],
                &mut lane,
                &mut buffer,
                copied,
            )? {
                // Nobody listens any more if emptying failed.
                let _ = done.send(*piece);
            }
        }
        let report = lane.close()?;
        copied.stored_bytes = report.stored_bytes;
        copied.reused_bytes = report.reused_bytes;
        Ok(())
    }

    fn pagemaps(&self) -> Result<Vec<Pagemap>, Error> {
        let open = |source: &Source| {
            Pagemap::open(source.task.pid).map_err(Error::task("see the pages of", source.task.pid))
        };
        self.sources.iter().map(open).collect()
    }

    /// Whether the piece is stored now, and may be emptied; one with pages that cannot be read is left to CRIU.
    fn copy_one(
        &self,
        piece: Piece,
        pagemap: &Pagemap,
        lane: &mut Lane<'_>,
        buffer: &mut Buffer,
        copied: &mut Copied,
    ) -> Result<bool, Error> {
        let pid = self.sources[piece.source].task.pid;
        let (start, end) = self.area(piece).chunk(piece.number);
        let runs = pagemap
            .runs(start, end)
            .map_err(Error::task("see the pages of", pid))?;
        let bytes = usize::try_from(end - start).unwrap_or(CHUNK);
        match read_runs(pid, start, &runs, &mut buffer.as_mut_slice()[..bytes]) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(false),
            other => other.map_err(Error::task("read the memory of", pid))?,
        }
        let present: u64 = runs.iter().map(|(start, end)| end - start).sum();
        copied.bytes += present;
        self.progress.add(present);
        let Some(pages) = StoredPages::of(&buffer.as_slice()[..bytes]) else {
            copied.zero_bytes += present;
            return Ok(true);
        };
        let stored = pages.pack(buffer);
        copied.zero_bytes += present.saturating_sub(stored as u64);
        let (checksum, place) = lane.put(buffer, stored)?;
        let number = u32::try_from(piece.number).map_err(|_| Error::TooLarge { pid })?;
        let chunk = Chunk {
            number,
            pages,
            checksum,
            place,
        };
        copied.chunks.push((piece, chunk));
        Ok(true)
    }
}

/// Reads runs of pages to where they are in the chunk that begins at `start`, and zeros between them.
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
        // What comes after a page that cannot be read is cut off.
        if read != wanted {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
    }
    Ok(())
}

/// Has the tasks give up what is stored. Only this thread can: it is the one that traces them.
fn empty_behind(
    work: &Work<'_>,
    finished: &Receiver<Piece>,
    taken: &mut Taken,
) -> Result<(), Error> {
    let mut threads: BTreeMap<usize, TracedThread> = BTreeMap::new();
    let mut waiting: BTreeMap<(usize, u64), (u64, bool)> = BTreeMap::new();
    let mut bytes = 0;
    let mut result = Ok(());
    for piece in finished {
        if result.is_err() {
            continue;
        }
        let area = work.area(piece);
        let (start, end) = area.chunk(piece.number);
        waiting.insert((piece.source, start), (end, area.is_locked));
        bytes += end - start;
        if bytes >= BATCH {
            result = empty(work, &mut threads, &mut waiting, taken);
            bytes = 0;
            if result.is_err() {
                work.stop.store(true, Ordering::Relaxed);
            }
        }
    }
    result.and_then(|()| empty(work, &mut threads, &mut waiting, taken))
}

/// Neighbours are emptied together.
fn empty(
    work: &Work<'_>,
    threads: &mut BTreeMap<usize, TracedThread>,
    waiting: &mut BTreeMap<(usize, u64), (u64, bool)>,
    taken: &mut Taken,
) -> Result<(), Error> {
    let begun = Instant::now();
    while let Some(((source, start), (mut end, is_locked))) = waiting.pop_first() {
        while waiting
            .get(&(source, end))
            .is_some_and(|next| next.1 == is_locked)
        {
            end = waiting.remove(&(source, end)).map_or(end, |next| next.0);
        }
        let pid = work.sources[source].task.pid;
        let advice = if is_locked {
            MADV_DONTNEED_LOCKED
        } else {
            libc::MADV_DONTNEED.unsigned_abs().into()
        };
        let failed = || Error::task("empty the memory of", pid);
        let thread = match threads.entry(source) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(TracedThread::of(pid).map_err(failed())?)
            }
        };
        // Noted first: a call that fails half-way has emptied some.
        taken.emptied.push((source, start, end));
        thread
            .call(libc::SYS_madvise, &[start, end - start, advice])
            .map_err(failed())?;
    }
    taken.empty_time += begun.elapsed();
    Ok(())
}

impl Taken {
    fn add(&mut self, copied: Copied) {
        for (piece, chunk) in copied.chunks {
            self.chunks
                .entry((piece.source, piece.area))
                .or_default()
                .push(chunk);
        }
        self.bytes += copied.bytes;
        self.zero_bytes += copied.zero_bytes;
        self.stored_bytes += copied.stored_bytes;
        self.reused_bytes += copied.reused_bytes;
    }

    /// For the index: all that is stored.
    pub(crate) fn processes(&mut self, sources: &[Source]) -> Vec<ProcessMemory> {
        let mut processes = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let mut areas = Vec::new();
            for (area, taken) in source.areas.iter().enumerate() {
                let mut chunks = self.chunks.remove(&(number, area)).unwrap_or_default();
                chunks.sort_by_key(|chunk| chunk.number);
                areas.push(Area {
                    start: taken.start,
                    bytes: taken.end - taken.start,
                    chunks,
                });
            }
            processes.push(ProcessMemory {
                pid: source.task.pid_inside,
                areas,
            });
        }
        processes
    }

    /// Whether a chunk of this source has been given up, or may have been.
    pub(crate) fn is_emptied(&self, source: usize, start: u64) -> bool {
        self.emptied
            .iter()
            .any(|&(of, from, to)| of == source && (from..to).contains(&start))
    }
}

/// Whole pages are all that there is.
const _: () = assert!(CHUNK.is_multiple_of(PAGE));
