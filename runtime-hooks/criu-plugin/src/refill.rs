//! Memory out of the store and into stopped tasks, by many threads. Contents are verified before they are written.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;
use stasis_memory_store::{Buffer, CHUNK, Chunk, Reader};

use crate::error::Error;
use crate::fault::{self, Point};
use crate::progress::Progress;
use crate::uffd::Userfaultfd;

/// A chunk that a task is given back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) pid: i32,
    pub(crate) pid_inside: i32,
    pub(crate) area: u64,
    pub(crate) chunk: &'a Chunk,
    /// Missing pages of the task are waited for, and have to be given in this way.
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
                // The others need not go on.
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

/// Gives how many bytes it was.
fn fill(target: Target<'_>, reader: &Reader, buffer: &mut Buffer) -> Result<u64, Error> {
    fault::point(Point::Fill)?;
    let content = reader.read(target.pid_inside, target.area, target.chunk, buffer)?;
    let written = match target.memory {
        Some(memory) => give_runs(target, memory, content),
        None => write_runs(target, content),
    };
    written.map_err(Error::task("write the memory of", target.pid))?;
    Ok(content.len() as u64)
}

fn give_runs(target: Target<'_>, memory: &Userfaultfd, mut content: &[u8]) -> io::Result<()> {
    for run in target.chunk.pages.runs() {
        let (own, rest) = content.split_at(run.bytes);
        memory.give(target.start() + run.offset as u64, own)?;
        content = rest;
    }
    Ok(())
}

fn write_runs(target: Target<'_>, content: &[u8]) -> io::Result<()> {
    let start = usize::try_from(target.start()).map_err(io::Error::other)?;
    let runs: Vec<_> = target
        .chunk
        .pages
        .runs()
        .map(|run| RemoteIoVec {
            base: start + run.offset,
            len: run.bytes,
        })
        .collect();
    let written = process_vm_writev(Pid::from_raw(target.pid), &[IoSlice::new(content)], &runs)?;
    if written != content.len() {
        return Err(io::Error::other(format!(
            "only {written} of {} bytes were taken at {start:x}",
            content.len()
        )));
    }
    Ok(())
}
