//! A stopped thread of another process whose registers are ours for a moment.

use std::io;

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::calls::Calls;
use crate::event::{Deadline, Event, next_event};
use crate::ffi::{self, RunTo, SignalMask, resume};
use crate::gate::gate as gate_of;
use crate::registers::Registers;
use crate::return_path::CriticalSection;
use crate::return_path::{ChildFrame, ReturnPath};

/// The number of no system call.
const NO_CALL: libc::c_long = -1;

/// A stopped thread that makes system calls for us. When this is dropped the thread is where it
/// was, still stopped, and makes an interrupted system call again.
///
/// If our process is killed while this lives, the thread goes its [`ReturnPath`]. If it has none it
/// faults at its next instruction, and its process ends with SIGSEGV ([`crate::registers::Gate`]).
#[derive(Debug)]
pub(crate) struct BorrowedThread {
    calls: Calls,
    found: Registers,
    mask: SignalMask,
    section: Option<CriticalSection>,
    return_path: Option<ReturnPath>,
}

impl BorrowedThread {
    /// Takes over the registers of a thread of a process that the calling thread traces and that is
    /// stopped.
    ///
    /// # Errors
    /// Errors of ptrace(2) and `/proc`; a program of another word size.
    pub(crate) fn take(pid: i32, thread: Pid, options: Options) -> io::Result<Self> {
        let found = Registers::read(thread)?;
        if !found.are_native() {
            return Err(io::Error::other("it is a 32-bit program"));
        }
        let section = CriticalSection::of(thread)?;
        let mask = ffi::signals(thread)?;
        let return_path = ReturnPath::lay(thread, found, mask, section.as_ref());
        let gate = match &return_path {
            Some(return_path) => return_path.gate(),
            None => gate_of(pid)?,
        };
        let borrowed = Self {
            calls: Calls::new(thread, gate, options),
            found,
            mask,
            section,
            return_path,
        };
        // The registers come first: the thread must not run on with its signals blocked.
        let returning = match &borrowed.return_path {
            Some(return_path) => return_path.returning(found),
            None => found.calling(gate, NO_CALL, &[]),
        };
        returning.write(thread)?;
        ffi::set_signals(thread, SignalMask::MAX)?;
        Ok(borrowed)
    }

    pub(crate) fn thread(&self) -> Pid {
        self.calls.thread()
    }

    /// Returns the frame for a process that the thread makes, if it has a return path.
    pub(crate) fn child_frame(&self) -> Option<ChildFrame> {
        self.return_path.as_ref().map(ReturnPath::of_child)
    }

    /// Leaves the registers as they are: the thread takes its return path once it is detached.
    pub(crate) fn leave_to_itself(self) {
        // The memory that the frames have overwritten must not be put back.
        std::mem::forget(self);
    }

    /// Has the thread make one system call, which must be one that does not wait.
    ///
    /// # Errors
    /// The call's own, those of ptrace(2), and `TimedOut`.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        self.calls.call(number, arguments)
    }

    /// Waits as long as it takes ([`Deadline::never`]): a thread that is detached earlier runs with
    /// our registers.
    fn put_back(&mut self) -> io::Result<()> {
        let thread = self.calls.thread();
        self.calls.leave()?;
        // The registers last: until then it would take its return path.
        ffi::set_signals(thread, self.mask)?;
        if let Some(section) = &self.section {
            section.restore(thread)?;
        }
        self.found.resuming().write(thread)?;
        if let Some(return_path) = &self.return_path {
            return_path.clear()?;
        }
        // Leaves a stop at a system call: the kernel would deliver that stop's SIGTRAP to the
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
