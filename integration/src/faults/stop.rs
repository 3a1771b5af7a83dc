//! The stops of traced threads, as the tracer tells them apart.

use anyhow::{Result, bail};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The reason why a thread has stopped, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Before a system call.
    Entry(Pid),
    /// After a system call.
    Exit(Pid),
    /// It has become another program.
    Program(Pid),
    /// It has made a thread, or a process with CLONE_PARENT, which the kernel takes for one.
    New(Pid, Pid),
    /// It gets a signal.
    Signal(Pid, Signal),
    /// A stop that the tracer need not know.
    Other(Pid),
    /// The thread has ended.
    Ended(Pid),
    /// No thread is traced any more.
    Nobody,
}

/// Waits for the next stop of a thread that this thread traces.
pub(super) fn next() -> Result<Stop> {
    // Other threads have children and traced threads of their own.
    let of_this_thread = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    let stopped = match waitpid(None, Some(of_this_thread)) {
        Err(Errno::ECHILD) => return Ok(Stop::Nobody),
        Err(Errno::EINTR) => return next(),
        stopped => stopped?,
    };
    Ok(match stopped {
        WaitStatus::PtraceSyscall(thread) => at_call(thread),
        WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_EXEC) => Stop::Program(thread),
        WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_CLONE) => new_of(thread),
        WaitStatus::PtraceEvent(thread, ..) => Stop::Other(thread),
        WaitStatus::Stopped(thread, signal) => Stop::Signal(thread, signal),
        WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..) => Stop::Ended(thread),
        other => bail!("a traced thread: {other:?}"),
    })
}

fn new_of(thread: Pid) -> Stop {
    // The thread may have been killed.
    let new = ptrace::getevent(thread)
        .ok()
        .and_then(|new| i32::try_from(new).ok());
    new.map_or(Stop::Other(thread), |new| {
        Stop::New(thread, Pid::from_raw(new))
    })
}

fn at_call(thread: Pid) -> Stop {
    match ptrace::syscall_info(thread) {
        Ok(info) if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY => Stop::Entry(thread),
        Ok(_) => Stop::Exit(thread),
        // The thread was killed meanwhile.
        Err(_) => Stop::Other(thread),
    }
}
