//! Memory out of the store and into tasks, by many threads. No task runs with a chunk that is
//! damaged: at a restore it ends the work, and else its task waits for it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;
use stasis_memory_store::{Buffer, CHUNK, Chunk, Loaded, Reader, Run};

use crate::engine::progress::Progress;
use crate::error::{Error, caught};
use crate::fault_injection::{self, Point};
use crate::uffd::Userfaultfd;

/// Bytes that are verified and then written while they are still in a core's cache.
const PART: usize = 256 << 10;

/// A chunk that a task is given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) pid: i32,
    pub(crate) pid_inside: i32,
    pub(crate) area: u64,
    pub(crate) chunk: &'a Chunk,
    /// The task's userfaultfd, if its missing pages are registered with one.
    pub(crate) memory: Option<&'a Userfaultfd>,
}

impl Target<'_> {
    /// The address of its first byte.
    pub(crate) fn start(&self) -> u64 {
        self.area + u64::from(self.chunk.number) * CHUNK as u64
    }

    /// How much is stored of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.chunk.pages.bytes() as u64
    }
}

/// Fills all targets, and ends at the first that fails.
pub(crate) fn refill(
    targets: &[Target<'_>],
    reader: &Reader,
    threads: usize,
    progress: &Progress,
) -> Result<(), Error> {
    let failed = fill_all(targets, reader, threads, progress, AfterFailure::Stop);
    match failed.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Fills all targets that can be filled. Returns the others, in the order of the targets.
pub(crate) fn refill_each<'t>(
    targets: &[Target<'t>],
    reader: &Reader,
    threads: usize,
) -> Vec<(Target<'t>, Error)> {
    let nobody = Progress::new(None, 0);
    let failed = fill_all(targets, reader, threads, &nobody, AfterFailure::GoOn);
    let failed = failed.into_iter();
    failed
        .map(|(number, error)| (targets[number], error))
        .collect()
}

/// What becomes of the other targets when one cannot be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterFailure {
    Stop,
    GoOn,
}

/// The numbers of the targets that could not be filled, in their order.
fn fill_all(
    targets: &[Target<'_>],
    reader: &Reader,
    threads: usize,
    progress: &Progress,
    after: AfterFailure,
) -> Vec<(usize, Error)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut buffer, mut failed) = (Buffer::new(), Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(target) = targets.get(number) else {
                break failed;
            };
            match caught(|| fill(*target, reader, &mut buffer)) {
                Ok(bytes) => progress.add(bytes),
                Err(error) => {
                    failed.push((number, error));
                    if after == AfterFailure::Stop {
                        // Ends the other threads.
                        next.store(targets.len(), Ordering::Relaxed);
                    }
                }
            }
        }
    };
    let mut failed = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let failed = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_default());
        failed.flatten().collect::<Vec<_>>()
    });
    failed.sort_by_key(|(number, _)| *number);
    failed
}

/// Returns the number of bytes.
fn fill(target: Target<'_>, reader: &Reader, buffer: &mut Buffer) -> Result<u64, Error> {
    fault_injection::point(Point::Fill)?;
    let loaded = reader.load(target.pid_inside, target.area, target.chunk, buffer)?;
    match target.memory {
        // A task may use a page as soon as it is there, so everything is verified first.
        Some(memory) => give_runs(target, memory, loaded.verified()?)
            .map_err(Error::task("write the memory of", target.pid))?,
        None => write_parts(target, loaded)?,
    }
    Ok(target.bytes())
}

fn give_runs(target: Target<'_>, memory: &Userfaultfd, mut content: &[u8]) -> io::Result<()> {
    for run in target.chunk.pages.runs() {
        let (own, rest) = content.split_at(run.bytes);
        memory.give(target.start() + run.offset as u64, own)?;
        content = rest;
    }
    Ok(())
}

/// Tasks stay stopped until everything is written, and are killed if anything fails, so the
/// checksum may be compared last.
fn write_parts(target: Target<'_>, loaded: Loaded<'_>) -> Result<(), Error> {
    loaded.hand_on(PART, |part, runs| {
        write(target, part, runs).map_err(Error::task("write the memory of", target.pid))
    })
}

fn write(target: Target<'_>, part: &[u8], runs: &[Run]) -> io::Result<()> {
    let start = usize::try_from(target.start()).map_err(io::Error::other)?;
    let places: Vec<_> = runs
        .iter()
        .map(|run| RemoteIoVec {
            base: start + run.offset,
            len: run.bytes,
        })
        .collect();
    let written = process_vm_writev(Pid::from_raw(target.pid), &[IoSlice::new(part)], &places)?;
    if written != part.len() {
        return Err(io::Error::other(format!(
            "only {written} of {} bytes were taken at {start:x}",
            part.len()
        )));
    }
    Ok(())
}
