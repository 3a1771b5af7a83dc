//! A checkpoint or restore that is under way, in a process of its own.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use stasis_linux::procfs::Stat;
use tokio::sync::watch;

use crate::runtime::Target;
use crate::runtime::programs::STASIS_RUNTIME;

/// A running `stasis-runtime checkpoint` or `restore`.
#[derive(Debug)]
pub(crate) struct Operation {
    process: OwnedFd,
    pid: Pid,
    caller: Caller,
    /// Signals for the task that came meanwhile. They are sent when the operation is over, if the
    /// init process still runs.
    pending: Vec<PendingSignal>,
}

/// Whoever waits for a call's answer. The call's handler holds the other end, and ttrpc drops the
/// handler at the caller's deadline.
pub(crate) type Caller = watch::Receiver<()>;

/// A signal that waits for the end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingSignal {
    /// The signal's number.
    pub(crate) signal: u32,
    /// The processes that it is for.
    pub(crate) target: Target,
}

impl Operation {
    /// The operation of the child `pid`, which has not been reaped.
    pub(crate) fn of(pid: u32, caller: Caller) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self {
            process: pidfd_open(pid, PidfdFlags::empty())?,
            pid,
            caller,
            pending: Vec::new(),
        })
    }

    /// Queues a signal for the task. A signal that is meant to end the task also asks the operation
    /// to end: at SIGTERM, `stasis-runtime` rolls back at the next step, so that the workload ends
    /// once and as a whole. For a container without GPU state it has become the low-level runtime
    /// (execve), which SIGTERM would end at once while its CRIU went on: that one is not signalled.
    pub(crate) fn signal(&mut self, signal: PendingSignal) {
        if ends_a_task(signal.signal) && self.is_stasis_runtime() {
            // Fails if the operation has just ended; the queued signal is sent soon then.
            let _ = pidfd_send_signal(&self.process, Signal::TERM);
        }
        self.pending.push(signal);
    }

    /// Whether the process is still `stasis-runtime`: execve(2) changes the name.
    fn is_stasis_runtime(&self) -> bool {
        let stat = Stat::of(self.pid.as_raw_nonzero().get());
        matches!(stat, Ok(Some(stat)) if stat.name == STASIS_RUNTIME.as_bytes())
    }

    /// Whoever waits for its outcome.
    pub(crate) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// The signals that are to be sent now.
    pub(crate) fn take_pending(&mut self) -> Vec<PendingSignal> {
        std::mem::take(&mut self.pending)
    }
}

/// Whether callers end containers with this signal.
fn ends_a_task(signal: u32) -> bool {
    [Signal::INT, Signal::QUIT, Signal::KILL, Signal::TERM]
        .iter()
        .any(|ending| u32::try_from(ending.as_raw()) == Ok(signal))
}
