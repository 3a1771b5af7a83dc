//! Memory out of the store and into stopped tasks, by many threads. A chunk that is damaged ends
//! the work, and no task runs with it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;
use stasis_memory_store::{Buffer, CHUNK, Chunk, Loaded, Reader, Run};

use crate::engine::progress::Progress;
use crate::error::Error;
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

/// Fills all targets.
pub(crate) fn refill(
    targets: &[Target<'_>],
    reader: &Reader,
    threads: usize,
    progress: &Progress,
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), Error> {
        let mut buffer = Buffer::new();
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let filled = fill(*target, reader, &mut buffer);
            if filled.is_err() {
                // Ends the other threads.
                next.store(targets.len(), Ordering::Relaxed);
            }
            progress.add(filled?);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut result = Ok(());
        for worker in workers {
            result = result.and(worker.join().unwrap_or(Err(Error::Panic)));
        }
        result
    })
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
