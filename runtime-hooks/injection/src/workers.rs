//! The processes that copy together with the driver, and the thread of ours that looks after them.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::libc;
use stasis_injected_copy::Board;
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::cpu_limit;
use stasis_linux::memory_file::mark;
use stasis_linux::procfs::Status;
use stasis_remote_call::{Life, Proxy, Start, Worker};

use crate::prepare::{Prepared, Transfer, unsigned};
use crate::record::{MAX_WORKERS, Span, Turn};

/// A stopped worker is continued after this: the driver waits for it.
const LOOK: Duration = Duration::from_millis(2);

/// Returns how many workers a process can use: one for each CPU that it may use, but for the CPU of
/// the driver's own thread; 0 if the CPUs are not known.
#[must_use]
pub fn count(process: &ProcessRef) -> u64 {
    let pid = process.pid();
    let status = Status::of(pid).ok().flatten();
    let allowed = status.and_then(|status| status.allowed_cpus());
    let limit = cpu_limit(pid).ok().flatten();
    let cpus = allowed.map(|allowed| limit.map_or(allowed, |limit| limit.min(allowed)));
    cpus.unwrap_or(1).saturating_sub(1).min(MAX_WORKERS)
}

/// The workers of one process. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Workers {
    /// Sends nothing: its end is the message.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Maps the file and starts the workers. A process can be traced by one thread only: the same
    /// thread makes them, looks after them, and ends them.
    pub(crate) fn start(prepared: Prepared) -> io::Result<Self> {
        let (end, ended) = mpsc::channel();
        let (result, made) = mpsc::channel();
        let thread = Builder::new().spawn(move || match make(&prepared) {
            Ok(workers) => {
                let _ = result.send(Ok(()));
                look_after(&prepared.process, workers, &ended);
            }
            Err(error) => drop(result.send(Err(error))),
        })?;
        let workers = Self {
            end: Some(end),
            thread: Some(thread),
        };
        let made = made.recv();
        made.unwrap_or_else(|_| Err(io::Error::other("the thread of the workers has ended")))?;
        Ok(workers)
    }
}

impl Drop for Workers {
    /// Ends the workers. No copy is under way any more: each can be killed wherever it is.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn make(prepared: &Prepared) -> io::Result<Vec<Worker>> {
    let (process, record) = (&prepared.process, &prepared.record);
    let listed = record.proxy(Turn::Arm);
    let mut proxy = Proxy::numbered(process.pid(), listed, || process.is_gone())?;
    if let (Transfer::Out { file, offset, .. }, Some(reserved)) =
        (&prepared.transfer, record.reserved)
    {
        map_file(&mut proxy, (file, *offset), reserved, record.scratch())?;
    }
    // Workers have no files: files that the program closes meanwhile are closed. Where a filter
    // refuses this call, they are closed later.
    let _ = proxy.call(libc::SYS_close_range, &[0, u32::MAX.into(), 0]);
    let mut workers = Vec::new();
    for (index, thread_id) in (0..record.workers).zip(Board::thread_ids()) {
        match Worker::make(&mut proxy, record.worker(index, thread_id)) {
            Ok(worker) => workers.push(worker),
            // The container may have no more processes (pids.max): fewer workers are only slower.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => break,
            Err(error) => return Err(error),
        }
    }
    proxy.end()?;
    for (index, worker) in (0..).zip(&mut workers) {
        worker.start(Start {
            code: record.all.start + prepared.image.helper as u64,
            stack: record.stack(index),
            argument: index,
        })?;
    }
    Ok(workers)
}

/// Maps the file. The descriptor is closed as soon as it is mapped ([`crate::detach`]).
///
/// A child that the process forks does not get the mapping, which is not locked into memory
/// (mlockall(2)): the file's owner decides where it is.
fn map_file(
    proxy: &mut Proxy,
    (file, offset): (&std::fs::File, u64),
    Span { start, length }: Span,
    scratch: u64,
) -> io::Result<()> {
    use std::os::fd::AsFd;
    mark(file)?;
    let inside = proxy.receive(file.as_fd(), scratch)?;
    let protection = unsigned(libc::PROT_READ | libc::PROT_WRITE);
    let flags = unsigned(libc::MAP_SHARED | libc::MAP_FIXED);
    let arguments = [start, length, protection, flags, inside, offset];
    proxy.call(libc::SYS_mmap, &arguments)?;
    proxy.call(libc::SYS_close, &[inside])?;
    let stay = unsigned(libc::MADV_DONTFORK);
    proxy.call(libc::SYS_madvise, &[start, length, stay])?;
    proxy.call(libc::SYS_munlock, &[start, length])?;
    Ok(())
}

fn look_after(process: &ProcessRef, mut workers: Vec<Worker>, ended: &Receiver<()>) {
    while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
        // The workers would keep its memory, and the driver waiting for it.
        if process.is_gone() {
            workers.clear();
        }
        // The code sees the end of a worker by itself. A worker that cannot be traced is ended.
        workers.retain_mut(|worker| matches!(worker.look_after(), Ok(Life::Goes)));
    }
}
