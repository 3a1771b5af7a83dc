//! System calls made by a thread that this thread of ours traces already, and that stays stopped.

use std::io;

use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::registers::Registers;
use crate::{EVENT_STOP, ffi, gate, unexpected};

/// A stopped thread that makes system calls for us. When this is dropped it is where it was, still stopped, with an
/// interrupted system call set back so that it is made again.
///
/// While this lives, the thread would not survive the end of ours: its registers are not its own.
#[derive(Debug)]
pub struct TracedThread {
    thread: Pid,
    gate: u64,
    found: Registers,
    mask: ffi::SignalMask,
    /// SIGSTOP cannot be blocked: one that came is sent again at the end.
    was_told_to_stop: bool,
}

impl TracedThread {
    /// The leader of a process, which the calling thread traces and which is stopped.
    ///
    /// # Errors
    /// What ptrace or `/proc` said; a program of another word size.
    pub fn of(pid: i32) -> io::Result<Self> {
        Self::with_gate(pid, gate(pid)?)
    }

    pub(crate) fn with_gate(pid: i32, gate: u64) -> io::Result<Self> {
        let thread = Pid::from_raw(pid);
        let found = Registers::read(thread)?;
        if !found.are_native() {
            return Err(io::Error::other("it is a 32-bit program"));
        }
        let mask = ffi::block_signals(thread)?;
        Ok(Self {
            thread,
            gate,
            found,
            mask,
            was_told_to_stop: false,
        })
    }

    /// Has the thread make one system call, which must be one that does not wait.
    ///
    /// # Errors
    /// What the call said, or ptrace.
    pub fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        let calling = self.found.calling(self.gate, number, arguments);
        loop {
            calling.write(self.thread)?;
            ptrace::step(self.thread, None)?;
            match waitpid(self.thread, Some(WaitPidFlag::__WALL))? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => break,
                // It says that it had been stopped, or is told to stop, and has not run for us yet.
                WaitStatus::PtraceEvent(_, _, EVENT_STOP) => {}
                WaitStatus::Stopped(_, Signal::SIGSTOP) => self.was_told_to_stop = true,
                other => return Err(unexpected(other)),
            }
        }
        let result = Registers::read(self.thread)?.result();
        match i32::try_from(result) {
            Ok(error @ -4095..=-1) => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(result.cast_unsigned()),
        }
    }

    pub(crate) fn thread(&self) -> Pid {
        self.thread
    }

    pub(crate) fn gate(&self) -> u64 {
        self.gate
    }

    fn put_back(&self) -> io::Result<()> {
        self.found.resuming().write(self.thread)?;
        ffi::set_signals(self.thread, self.mask)?;
        // Out of the stop that the step ended in: if we end before the thread goes on, it would get that stop's SIGTRAP.
        ptrace::interrupt(self.thread)?;
        ptrace::cont(self.thread, None)?;
        match waitpid(self.thread, Some(WaitPidFlag::__WALL))? {
            WaitStatus::PtraceEvent(_, _, EVENT_STOP) => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}

impl Drop for TracedThread {
    fn drop(&mut self) {
        // A thread that was killed needs none of this.
        let _ = self.put_back();
        if self.was_told_to_stop {
            let _ = kill(self.thread, Signal::SIGSTOP);
        }
    }
}
