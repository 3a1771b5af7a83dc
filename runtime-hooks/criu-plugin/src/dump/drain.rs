//! Memory out of the tasks and into the store: copied by many threads, and freed behind them, so
//! that there is hardly ever more than one copy of anything.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Instant;

use nix::libc;
use stasis_memory_store::{CHUNK, Stream};
use stasis_remote_call::Proxy;

use crate::dump::copy::{Finished, Work};
use crate::dump::drained::Drained;
use crate::dump::source::{Piece, Source};
use crate::dump::uffd_daemon::UffdDaemon;
use crate::engine::progress::Progress;
use crate::error::Error;
use crate::fault_injection::{self, Point};

/// How much is freed in one go: much for a system call, little beside the whole.
const BATCH: usize = (64 << 20) / CHUNK;
/// How far copying may run ahead of emptying, chunks.
const AHEAD: usize = 2 * BATCH;
/// As `MADV_DONTNEED`, for memory that is locked (Linux 5.18).
const MADV_DONTNEED_LOCKED: u64 = 24;

/// Drains all sources, with one thread per stream. `proxies` share the memory of the sources, in
/// the same order. After a failure the first value says what was done before it.
pub(crate) fn drain(
    sources: &[Source],
    proxies: &mut [Proxy],
    streams: Vec<Stream<'_>>,
    daemon: &mut UffdDaemon,
    progress: &Progress,
) -> (Drained, Result<(), Error>) {
    let work = Work::new(sources, progress);
    let mut taken = Drained::default();
    let result = thread::scope(|scope| {
        let (done, finished) = sync_channel(AHEAD);
        let workers: Vec<_> = streams
            .into_iter()
            .map(|stream| {
                let (work, done) = (&work, done.clone());
                scope.spawn(move || work.copy(stream, &done))
            })
            .collect();
        drop(done);
        // The receiver is dropped with it, which ends threads that still want to send.
        let mut result = empty_behind(&work, finished, proxies, daemon, &mut taken);
        for worker in workers {
            let counted = worker.join().unwrap_or(Err(Error::Panic));
            result = result.and(counted.map(|counts| taken.counts += counts));
        }
        result
    });
    (taken, result)
}

/// Records what is stored and frees that memory. Only this thread can, as it traces the proxies.
fn empty_behind(
    work: &Work<'_>,
    finished: Receiver<Finished>,
    proxies: &mut [Proxy],
    daemon: &mut UffdDaemon,
    taken: &mut Drained,
) -> Result<(), Error> {
    let mut waiting = BTreeSet::new();
    for (piece, chunk) in finished {
        let result = daemon.tell(piece, chunk.as_ref());
        taken.add_chunk(piece, chunk);
        waiting.insert(piece);
        let result = result.and_then(|()| match waiting.len() {
            BATCH.. => empty(work, std::mem::take(&mut waiting), proxies, daemon, taken),
            _ => Ok(()),
        });
        if result.is_err() {
            work.stop();
            return result;
        }
    }
    empty(work, waiting, proxies, daemon, taken)
}

/// Frees the memory of these pieces; neighbours with one call. They are registered with the
/// userfaultfd right before that: a registered page that is reclaimed before it was read would be
/// waited for.
fn empty(
    work: &Work<'_>,
    pieces: BTreeSet<Piece>,
    proxies: &mut [Proxy],
    daemon: &UffdDaemon,
    taken: &mut Drained,
) -> Result<(), Error> {
    fault_injection::point(Point::Empty)?;
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
        let task = &work.sources[piece.source].task;
        if let Err(error) = daemon.memory()[piece.source].protect(start, end) {
            // As where the process may have no more mappings (ENOMEM).
            let pid = task.pid_inside;
            let line = format!("process {pid}: {start:x}-{end:x} cannot be guarded: {error}");
            taken.left.push(line);
            taken.leave(piece, (end - start).div_ceil(CHUNK as u64));
            continue;
        }
        let call = proxies[piece.source].call(libc::SYS_madvise, &[start, end - start, advice]);
        call.map_err(Error::task("empty the memory of", task.pid))?;
    }
    taken.empty_time += begun.elapsed();
    Ok(())
}
