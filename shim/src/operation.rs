//! A checkpoint or restore that is under way in a process of its own.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::engine::ENGINE;

/// A running `stasis-runtime checkpoint` or `restore`.
#[derive(Debug)]
pub(crate) struct Operation {
    process: OwnedFd,
    pid: Pid,
    /// Signals for the task's init process that came meanwhile; they reach it when the operation
    /// is over, if it is still there.
    pending: Vec<PendingSignal>,
}

/// A signal that waits for the end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingSignal {
    /// Its number.
    pub(crate) signal: u32,
    /// Whether it is for all processes.
    pub(crate) target: Target,
}

/// Whom a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The init process.
    Init,
    /// All processes of the container.
    All,
}

impl Operation {
    /// The operation that the child `pid`, not reaped yet, carries out.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self {
            process: pidfd_open(pid, PidfdFlags::empty())?,
            pid,
            pending: Vec::new(),
        })
    }

    /// Takes a signal for the task. One that is meant to end it ends the operation first: the
    /// engine notes SIGTERM and rolls back at the next boundary of a step, so that the workload
    /// dies once and as a whole. A container without GPU state is dumped by the low-level runtime in
    /// the engine's place, which would end at once and leave CRIU at work: that is waited for.
    pub(crate) fn signal(&mut self, signal: PendingSignal) {
        if ends(signal.signal) && self.is_the_engine() {
            // The operation may just have ended; then the signal is delivered right away.
            let _ = pidfd_send_signal(&self.process, Signal::TERM);
        }
        self.pending.push(signal);
    }

    /// Whether the process is the engine still: its name changes with its program (execve(2)).
    fn is_the_engine(&self) -> bool {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pid));
        name.is_ok_and(|name| name.trim_end() == ENGINE)
    }

    /// What is left to be delivered.
    pub(crate) fn into_pending(self) -> Vec<PendingSignal> {
        self.pending
    }
}

/// Signals with which callers end containers.
fn ends(signal: u32) -> bool {
    [Signal::INT, Signal::QUIT, Signal::KILL, Signal::TERM]
        .iter()
        .any(|ending| u32::try_from(ending.as_raw()) == Ok(signal))
}
