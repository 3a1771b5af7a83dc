//! The reports of a traced thread to its tracer, and the time that we wait for them.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;
use rustix::process::{WaitOptions, waitpid};

use crate::status::is_alive;

/// A thread that stays in the kernel for longer cannot be stopped now.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_micros(100);
/// `PTRACE_EVENT_STOP` (ptrace(2)): a seized thread has stopped outside of system calls.
const EVENT_STOP: i32 = 128;
/// `PTRACE_O_TRACESYSGOOD` marks the stops at system calls with this bit.
const SYSCALL_BIT: i32 = 0x80;
/// linux/ptrace.h, since Linux 5.3.
const EVENTMSG_SYSCALL_ENTRY: libc::c_long = 1;
const EVENTMSG_SYSCALL_EXIT: libc::c_long = 2;

/// The time by which a step has to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// The deadline of one call, with all events in between.
    pub(crate) fn soon() -> Self {
        Self(Some(Instant::now() + PATIENCE))
    }

    /// For steps that must not be left half done: a thread that is detached with our registers
    /// faults, and a killed one may change memory until the kernel has ended it. Our calls do not
    /// sleep, so only a frozen cgroup of version 1, or a disk or file system that does not answer,
    /// delays them. No operation waits for that without end: the tracer is a process made for it
    /// (the engine's `stasis-replace`, `stasis-gpu-copy` and `stasis-gpu-hold`, CRIU and the forks
    /// of our plugin), which the operation leaves behind, or gives up, at a deadline of its own.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// # Errors
    /// `TimedOut` once it has passed.
    pub(crate) fn check(self) -> io::Result<()> {
        match self.0 {
            Some(end) if Instant::now() >= end => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    /// Sleeps for a moment.
    ///
    /// # Errors
    /// `TimedOut` once it has passed.
    pub(crate) fn poll(self) -> io::Result<()> {
        self.check()?;
        sleep(POLL);
        Ok(())
    }
}

/// The place where a traced thread has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// After PTRACE_INTERRUPT, at the beginning of its life, or because its process is stopped.
    Stop,
    /// At the beginning of a system call.
    SyscallEntry,
    /// At the end of a system call.
    SyscallExit,
    /// Before this signal is delivered to it.
    Signal(i32),
}

/// Waits for the next stop of a thread.
///
/// # Errors
/// `NotFound` if it has ended, `TimedOut`, and errors of waitpid(2).
pub(crate) fn next_event(thread: Pid, deadline: Deadline) -> io::Result<Event> {
    loop {
        if let Some(event) = event_now(thread)? {
            return Ok(event);
        }
        // waitpid(2) reports the end of a leader only after all threads of its process have ended,
        // and the last thread of a pid namespace's init may wait for a child that we have to reap.
        if !is_alive(thread.as_raw())? {
            return event_now(thread)?.ok_or(io::ErrorKind::NotFound.into());
        }
        deadline.poll()?;
    }
}

/// Returns the stop that a thread has come to; `None` if it runs.
///
/// # Errors
/// `NotFound` if it has ended, and errors of waitpid(2).
pub(crate) fn event_now(thread: Pid) -> io::Result<Option<Event>> {
    let pid = rustix::process::Pid::from_raw(thread.as_raw());
    // A tracer waits for its tracees, children or not; `__WALL`: threads, too.
    let options = WaitOptions::NOHANG | WaitOptions::from_bits_retain(libc::__WALL.unsigned_abs());
    match waitpid(pid, options)? {
        None => Ok(None),
        Some((_, status)) if status.stopped() => event(thread, status.as_raw()).map(Some),
        Some(_) => Err(io::ErrorKind::NotFound.into()),
    }
}

fn event(thread: Pid, status: i32) -> io::Result<Event> {
    if status >> 16 == EVENT_STOP {
        return Ok(Event::Stop);
    }
    let signal = libc::WSTOPSIG(status);
    // A stop at a system call is a SIGTRAP with the number of that signal as its code. The bit is
    // only there with PTRACE_O_TRACESYSGOOD, which CRIU does not always set.
    let is_at_syscall = signal & !SYSCALL_BIT == libc::SIGTRAP
        && ptrace::getsiginfo(thread)?.si_code & !SYSCALL_BIT == libc::SIGTRAP;
    if !is_at_syscall {
        return Ok(Event::Signal(signal));
    }
    match ptrace::getevent(thread)? {
        EVENTMSG_SYSCALL_ENTRY => Ok(Event::SyscallEntry),
        EVENTMSG_SYSCALL_EXIT => Ok(Event::SyscallExit),
        other => Err(io::Error::other(format!(
            "unexpected ptrace event message {other}"
        ))),
    }
}
