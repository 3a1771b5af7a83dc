//! Memory out of the tasks and into the store: copied by many threads, emptied behind them by the tasks themselves, so that there is
//! hardly ever more than one copy of anything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSliceMut};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use stasis_memory_store::{Area, Buffer, CHUNK, Chunk, Lane, ProcessMemory, StoredPages};
use stasis_remote_call::MemoryProxy;

use crate::areas::TakenArea;
use crate::error::{Error, caught};
use crate::fault::{self, Point};
use crate::guard::Guard;
use crate::pagemap::Pagemap;
use crate::progress::Progress;
use crate::tree::Task;

/// What a task empties in one go: much for a system call, little beside the whole.
const BATCH: usize = (64 << 20) / CHUNK;
/// How far copying may run ahead of emptying, chunks.
const AHEAD: usize = 2 * BATCH;
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
            for number in area.chunks() {
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
    /// Process, start and end address.
    emptied: Vec<(i32, u64, u64)>,
    pub(crate) counts: Counts,
    pub(crate) empty_time: Duration,
}

/// Bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// That there were.
    pub(crate) bytes: u64,
    pub(crate) zero: u64,
    pub(crate) stored: u64,
    pub(crate) reused: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.zero += other.zero;
        self.stored += other.stored;
        self.reused += other.reused;
    }
}

/// One chunk of the work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Piece {
    pub(crate) source: usize,
    pub(crate) area: usize,
    pub(crate) number: u64,
}

/// A piece that may be emptied, and where it is stored; nowhere if it holds nothing but zeros.
type Finished = (Piece, Option<Chunk>);

/// Drains all sources, with a thread for each lane. `proxies` have the
/// memory of the sources, `guard` looks after the tasks. What could be done
/// before a failure is in `Taken`, too.
pub(crate) fn drain(
    sources: &[Source],
    proxies: &mut [MemoryProxy],
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
        let (done, finished) = sync_channel(AHEAD);
        let workers: Vec<_> = lanes
            .into_iter()
            .map(|lane| {
                let (work, done) = (&work, done.clone());
                scope.spawn(move || work.copy(lane, &done))
            })
            .collect();
        drop(done);
        // The receiver goes with it: threads that still have something to say end.
        let mut result = empty_behind(&work, finished, proxies, guard, &mut taken);
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
            pieces.extend(taken.chunks().map(|number| Piece {
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

impl Work<'_> {
    fn area(&self, piece: Piece) -> &TakenArea {
        &self.sources[piece.source].areas[piece.area]
    }

    /// A thread's work: copies pieces until there are none, and says which are done.
    fn copy(&self, lane: Lane<'_>, done: &SyncSender<Finished>) -> Result<Counts, Error> {
        // A panic is noticed here, so that the others stop at once.
        let result = caught(|| self.copy_all(lane, done));
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn copy_all(&self, mut lane: Lane<'_>, done: &SyncSender<Finished>) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let mut buffer = Buffer::new();
        let pagemaps = self.pagemaps()?;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let pagemap = &pagemaps[piece.source];
            let finished = self.copy_one(*piece, pagemap, &mut lane, &mut buffer, &mut counts)?;
            // Nobody listens any more if emptying failed.
            if let Some(finished) = finished
                && done.send(finished).is_err()
            {
                break;
            }
        }
        let report = lane.close()?;
        counts.stored = report.stored_bytes;
        counts.reused = report.reused_bytes;
        Ok(counts)
    }

    fn pagemaps(&self) -> Result<Vec<Pagemap>, Error> {
        let open = |source: &Source| {
            Pagemap::open(source.task.pid).map_err(Error::task("see the pages of", source.task.pid))
        };
        self.sources.iter().map(open).collect()
    }

    /// Stores a piece. One with pages that cannot be read is left to CRIU.
    fn copy_one(
        &self,
        piece: Piece,
        pagemap: &Pagemap,
        lane: &mut Lane<'_>,
        buffer: &mut Buffer,
        counts: &mut Counts,
    ) -> Result<Option<Finished>, Error> {
        fault::point(Point::Copy)?;
        let pid = self.sources[piece.source].task.pid;
        let (start, end) = self.area(piece).chunk(piece.number);
        let runs = pagemap
            .runs(start, end)
            .map_err(Error::task("see the pages of", pid))?;
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
        let (checksum, place) = lane.put(buffer, &pages)?;
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

/// Takes note of what is stored, and has it given up. Only this thread can: it is the one that traces the proxies.
fn empty_behind(
    work: &Work<'_>,
    finished: Receiver<Finished>,
    proxies: &mut [MemoryProxy],
    guard: &mut Guard,
    taken: &mut Taken,
) -> Result<(), Error> {
    let mut waiting = BTreeSet::new();
    for (piece, chunk) in finished {
        let result = guard.tell(piece, chunk.as_ref());
        taken
            .chunks
            .entry((piece.source, piece.area))
            .or_default()
            .extend(chunk);
        waiting.insert(piece);
        let result = result.and_then(|()| match waiting.len() {
            BATCH.. => empty(work, std::mem::take(&mut waiting), proxies, taken),
            _ => Ok(()),
        });
        if result.is_err() {
            work.stop.store(true, Ordering::Relaxed);
            return result;
        }
    }
    empty(work, waiting, proxies, taken)
}

/// Neighbours are emptied together.
fn empty(
    work: &Work<'_>,
    pieces: BTreeSet<Piece>,
    proxies: &mut [MemoryProxy],
    taken: &mut Taken,
) -> Result<(), Error> {
    fault::point(Point::Empty)?;
    let begun = Instant::now();
    let mut ranges: Vec<(Piece, u64, u64)> = Vec::new();
    for piece in pieces {
        let (start, end) = work.area(piece).chunk(piece.number);
        match ranges.last_mut() {
            Some((before, _, last))
                if (before.source, before.area, *last) == (piece.source, piece.area, start) =>
            {
                *last = end
            }
            _ => ranges.push((piece, start, end)),
        }
    }
    for (piece, start, end) in ranges {
        let advice = match work.area(piece).is_locked {
            true => MADV_DONTNEED_LOCKED,
            false => libc::MADV_DONTNEED.unsigned_abs().into(),
        };
        // Noted first: a call that fails half-way has emptied some.
        let pid = work.sources[piece.source].task.pid;
        taken.emptied.push((pid, start, end));
        let call = proxies[piece.source].call(libc::SYS_madvise, &[start, end - start, advice]);
        call.map_err(Error::task("empty the memory of", pid))?;
    }
    taken.empty_time += begun.elapsed();
    Ok(())
}

impl Taken {
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

    /// Whether the chunk of this process that begins there has been given up, or may have been.
    pub(crate) fn is_emptied(&self, pid: i32, start: u64) -> bool {
        self.emptied
            .iter()
            .any(|&(of, from, to)| of == pid && (from..to).contains(&start))
    }
}
