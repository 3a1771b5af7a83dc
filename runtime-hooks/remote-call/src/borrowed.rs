//! A stopped thread of another process whose registers are ours for a moment.

use std::io;

use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};

use crate::calls::Calls;
use crate::event::{Deadline, Event, next_event};
use crate::ffi::{self, RunTo, resume};
use crate::registers::Registers;
use crate::rseq::CriticalSection;

/// A stopped thread that makes system calls for us. When this is dropped the thread is where it
/// was, still stopped, and makes an interrupted system call again.
///
/// If our process is killed while this lives, the thread faults at its next instruction and its
/// process ends with SIGSEGV: see [`Registers::calling`].
#[derive(Debug)]
pub(crate) struct BorrowedThread {
    calls: Calls,
    found: Registers,
    mask: ffi::SignalMask,
    section: Option<CriticalSection>,
}

impl BorrowedThread {
    /// Takes over the registers of a thread that the calling thread traces and that is stopped.
    ///
    /// # Errors
    /// Those of ptrace(2) and `/proc`; a program of another word size.
    pub(crate) fn take(calls: Calls) -> io::Result<Self> {
        let thread = calls.thread();
        let found = Registers::read(thread)?;
        if !found.are_native() {
            return Err(io::Error::other("it is a 32-bit program"));
        }
        let section = CriticalSection::of(thread)?;
        Ok(Self {
            mask: ffi::block_signals(thread)?,
            calls,
            found,
            section,
        })
    }

    /// Has the thread make one system call, which must be one that does not wait.
    ///
    /// # Errors
    /// The call's own, those of ptrace(2), and `TimedOut`.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        self.calls.call(number, arguments)
    }

    /// Waits as long as it takes ([`Deadline::never`]): a thread that is let go before runs with
    /// our registers.
    fn put_back(&mut self) -> io::Result<()> {
        let thread = self.calls.thread();
        self.calls.leave()?;
        self.found.resuming().write(thread)?;
        if let Some(section) = &self.section {
            section.restore(thread)?;
        }
        ffi::set_signals(thread, self.mask)?;
        // Out of a stop at a system call: the kernel would deliver that stop's SIGTRAP to the
        // thread if we ended now (ptrace_report_syscall in linux/ptrace.h).
        ptrace::interrupt(thread)?;
        let mut signal = 0;
        loop {
            resume(thread, RunTo::Event, signal)?;
            match next_event(thread, Deadline::never())? {
                Event::Stop => return Ok(()),
                Event::Signal(other) => signal = other,
                Event::SyscallEntry | Event::SyscallExit => signal = 0,
            }
        }
    }
}

impl Drop for BorrowedThread {
    fn drop(&mut self) {
        // This fails for a thread that was killed, which needs no registers.
        let _ = self.put_back();
        if self.calls.was_told_to_stop() {
            let _ = kill(self.calls.thread(), Signal::SIGSTOP);
        }
    }
}
