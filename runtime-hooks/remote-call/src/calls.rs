//! One system call by a stopped thread, and nothing else.
//!
//! The thread runs between two stops of PTRACE_SYSCALL. Up to the first, at the entry of the call,
//! it executes user code, and its seccomp filter applies: other threads of its process can exchange
//! that code. There we compare its registers with the expected ones, so a thread that has come
//! elsewhere makes no call at all. Between the entry and the exit it executes kernel code alone,
//! and only then is the filter suspended: it is meant for the program's calls, not for ours.

use std::io;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

use crate::event::{Deadline, Event, next_event};
use crate::ffi::{RunTo, resume};
use crate::registers::{ARCHITECTURE, Gate, Registers};

/// A stopped thread that the calling thread traces, and the way it makes system calls.
#[derive(Debug)]
pub(crate) struct Calls {
    thread: Pid,
    gate: Gate,
    /// The options of ptrace(2) between calls.
    options: Options,
    /// The stop that the thread is in; `None` while it runs.
    at: Option<Event>,
    /// The number of its last call.
    last: Option<libc::c_long>,
    was_told_to_stop: bool,
}

impl Calls {
    pub(crate) fn new(thread: Pid, gate: Gate, options: Options) -> Self {
        Self {
            thread,
            gate,
            options,
            at: Some(Event::Stop),
            last: None,
            was_told_to_stop: false,
        }
    }

    pub(crate) fn thread(&self) -> Pid {
        self.thread
    }

    /// Returns whether a SIGSTOP came, which cannot be blocked, and which the thread did not get.
    pub(crate) fn was_told_to_stop(&self) -> bool {
        self.was_told_to_stop
    }

    /// Returns whether the thread may be in a call that changes memory, which the kernel finishes
    /// even if the thread is killed. close_range(2) may wait for a server, and changes no memory.
    pub(crate) fn may_change_memory(&self) -> bool {
        self.at.is_none() && self.last != Some(libc::SYS_close_range)
    }

    /// Has the thread make one system call.
    ///
    /// # Errors
    /// The call's own, those of ptrace(2), and `TimedOut`: the thread may be in the call then.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: &[u64]) -> io::Result<u64> {
        let deadline = Deadline::soon();
        self.last = Some(number);
        let calling = Registers::read(self.thread)?.calling(self.gate, number, arguments);
        calling.write(self.thread)?;
        self.run_to(Event::SyscallEntry, deadline)?;
        let is_native = ptrace::syscall_info(self.thread)?.arch == ARCHITECTURE;
        if !is_native || !Registers::read(self.thread)?.are_entering(calling) {
            self.leave()?;
            return Err(io::Error::other("its vDSO was changed while it was used"));
        }
        self.suspend_seccomp()?;
        self.run_to(Event::SyscallExit, deadline)?;
        self.resume_seccomp()?;
        let result = Registers::read(self.thread)?.result();
        match i32::try_from(result) {
            Ok(error @ -4095..=-1) => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(result.cast_unsigned()),
        }
    }

    /// Brings the thread from wherever a failed call has left it to a stop behind that call,
    /// however long that takes ([`Deadline::never`]).
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        if self.at.is_none() {
            ptrace::interrupt(self.thread)?;
            self.at = Some(next_event(self.thread, Deadline::never())?);
        }
        if self.at == Some(Event::SyscallEntry) {
            // The filter would judge the skipped call, too.
            self.suspend_seccomp()?;
            Registers::skip_call(self.thread)?;
            self.run_to(Event::SyscallExit, Deadline::never())?;
        }
        self.resume_seccomp()
    }

    fn run_to(&mut self, wanted: Event, deadline: Deadline) -> io::Result<()> {
        loop {
            resume(self.thread, RunTo::Syscall, 0)?;
            self.at = None;
            let event = next_event(self.thread, deadline)?;
            self.at = Some(event);
            match event {
                event if event == wanted => return Ok(()),
                // Its process was stopped or resumed; the thread has not made our call yet.
                Event::Stop => deadline.check()?,
                Event::Signal(libc::SIGSTOP) => {
                    self.was_told_to_stop = true;
                    deadline.check()?;
                }
                Event::Signal(signal) => {
                    let what = format!("signal {signal} came instead of a system call");
                    return Err(io::Error::other(what));
                }
                other => return Err(io::Error::other(format!("unexpected stop: {other:?}"))),
            }
        }
    }

    fn suspend_seccomp(&self) -> io::Result<()> {
        let suspended = Options::from_bits_retain(libc::PTRACE_O_SUSPEND_SECCOMP);
        match ptrace::setoptions(self.thread, self.options | suspended) {
            // We may not suspend the filter, or the kernel cannot: then the filter judges the call.
            Err(Errno::EPERM | Errno::EINVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    fn resume_seccomp(&self) -> io::Result<()> {
        Ok(ptrace::setoptions(self.thread, self.options)?)
    }
}
