//! A checkpoint or restore that is under way, in a process of its own.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::sync::watch;

use crate::runtime::Target;
use crate::runtime::process::RuntimeProcess;

/// A running `stasis-runtime checkpoint` or `restore`.
#[derive(Debug)]
pub(crate) struct Operation {
    process: Arc<RuntimeProcess>,
    /// Waits for its outcome.
    pub(crate) caller: Caller,
    /// Signals for the task that came meanwhile. They are sent when the operation is over, if the
    /// init process still runs.
    pending: Vec<PendingSignal>,
}

/// The caller that waits for a call's answer. The call's handler holds the other end, and ttrpc
/// drops the handler at the caller's deadline.
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
    /// The operation of a process.
    pub(crate) fn of(process: RuntimeProcess, caller: Caller) -> Self {
        Self {
            process: Arc::new(process),
            caller,
            pending: Vec::new(),
        }
    }

    /// Queues a signal for the task. A signal that is meant to end the task also asks the operation
    /// to end: at SIGTERM, `stasis-runtime` rolls back at the next step, so that the workload ends
    /// once and as a whole. For a container without GPU state it has become the low-level runtime
    /// (execve), which SIGTERM would end at once while its CRIU went on: that one is not signalled.
    pub(crate) fn signal(&mut self, signal: PendingSignal) {
        if ends_a_task(signal.signal) && self.process.is_stasis_runtime() {
            // Fails if the operation has just ended; the queued signal is sent soon then.
            let _ = self.process.signal(Signal::TERM);
        }
        self.pending.push(signal);
    }

    /// Its process.
    pub(crate) fn process(&self) -> Arc<RuntimeProcess> {
        Arc::clone(&self.process)
    }

    /// Returns whether it is the operation of this process.
    pub(crate) fn is_of(&self, process: &Arc<RuntimeProcess>) -> bool {
        Arc::ptr_eq(&self.process, process)
    }

    /// Takes the signals that are to be sent now.
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
