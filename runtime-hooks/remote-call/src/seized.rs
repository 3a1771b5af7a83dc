//! A thread of a running process that we stop.

use std::io;

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use stasis_linux::procfs::threads;

use crate::borrowed::BorrowedThread;
use crate::event::{Deadline, Event, next_event};
use crate::ffi::{RunTo, resume};
use crate::status::is_alive;

/// A stopped thread with its own registers; it goes on when this is dropped, and when we end.
#[derive(Debug)]
pub(crate) struct SeizedThread {
    pid: i32,
    thread: Pid,
}

impl SeizedThread {
    /// Stops a thread of the process with this pid. Calls `is_gone` once we hold the thread, since
    /// the pid may have become another process's before.
    ///
    /// # Errors
    /// Errors of ptrace(2): a process that is being debugged has a tracer already (EPERM). Then the
    /// process goes on.
    pub(crate) fn stop(pid: i32, is_gone: impl FnOnce() -> bool) -> io::Result<Self> {
        Self::stop_thread(pid, live_thread(pid)?, is_gone)
    }

    /// As [`Self::stop`], for one thread of the process.
    pub(crate) fn stop_thread(
        pid: i32,
        thread: Pid,
        is_gone: impl FnOnce() -> bool,
    ) -> io::Result<Self> {
        ptrace::seize(thread, Options::PTRACE_O_TRACESYSGOOD)?;
        let seized = Self { pid, thread };
        if is_gone() {
            return Err(io::ErrorKind::NotFound.into());
        }
        seized.interrupt()?;
        Ok(seized)
    }

    /// Has the thread make one system call, which must be one that does not wait, and puts its
    /// registers back.
    ///
    /// # Errors
    /// The call's own, those of ptrace(2), and `TimedOut`.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        self.borrow()?.call(number, arguments)
    }

    /// # Errors
    /// Errors of ptrace(2) and `/proc`; a program of another word size.
    pub(crate) fn borrow(&mut self) -> io::Result<BorrowedThread> {
        let options = Options::PTRACE_O_TRACESYSGOOD;
        BorrowedThread::take(self.pid, self.thread, options)
    }

    pub(crate) fn thread(&self) -> Pid {
        self.thread
    }

    /// Stops the thread, and delivers the signals that come before the stop.
    fn interrupt(&self) -> io::Result<()> {
        let deadline = Deadline::soon();
        ptrace::interrupt(self.thread)?;
        loop {
            let signal = match next_event(self.thread, deadline)? {
                Event::Stop => return Ok(()),
                Event::Signal(signal) => signal,
                Event::SyscallEntry | Event::SyscallExit => 0,
            };
            resume(self.thread, RunTo::Event, signal)?;
            deadline.check()?;
        }
    }
}

impl Drop for SeizedThread {
    fn drop(&mut self) {
        // Only a stopped thread can be detached. A thread that does not stop now has its own
        // registers, and goes on when we end.
        if ptrace::detach(self.thread, None).is_err() && self.interrupt().is_ok() {
            let _ = ptrace::detach(self.thread, None);
        }
    }
}

/// Returns any living thread; the leader may have ended while others go on.
fn live_thread(pid: i32) -> io::Result<Pid> {
    for thread in threads(pid)? {
        if is_alive(thread)? {
            return Ok(Pid::from_raw(thread));
        }
    }
    Err(io::ErrorKind::NotFound.into())
}
