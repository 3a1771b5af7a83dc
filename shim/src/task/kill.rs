//! Kill: sends signals to a task, also while an operation is under way.

use std::sync::Arc;

use stasis_linux::procfs::{Stat, TaskState};

use crate::error::{Error, Result};
use crate::runtime::Target;
use crate::task::Task;
use crate::task::operation::PendingSignal;

/// SIGKILL's number.
pub(crate) const SIGKILL: u32 = 9;

impl Task {
    /// Sends a signal. During an operation the caller is answered at once, and the signal is sent
    /// when the operation is over.
    ///
    /// Waits for no lock: it is the way out when another verb hangs.
    pub(crate) async fn kill(self: &Arc<Self>, signal: u32, target: Target) -> Result<()> {
        {
            let mut record = self.record();
            if let Some(operation) = record.state.operation() {
                operation.signal(PendingSignal { signal, target });
                if signal == SIGKILL {
                    self.end_if_it_hangs(operation.process());
                }
                return Ok(());
            }
            if record.pid == 0 {
                return Err(Error::NotFound(format!("a process of {}", self.id)));
            }
        }
        // In a shared pid namespace other processes may have outlived the init process.
        if self.init_exit.borrow().is_some() && target == Target::Init {
            return Err(Error::Finished(self.id.clone()));
        }
        self.deliver(signal, target).await
    }

    /// Sends a signal through the low-level runtime, which can also kill a frozen process. A
    /// container may have asked `stasis-runtime` for a checkpoint in its place.
    pub(crate) async fn deliver(&self, signal: u32, target: Target) -> Result<()> {
        let through = self.record().through;
        let sent = self.runtime.kill(&self.id, through, signal, target).await;
        match sent {
            // The runtimes' errors for a process that has ended differ, so look at the process.
            Err(_) if self.has_ended() => Err(Error::Finished(self.id.clone())),
            other => other,
        }
    }

    fn has_ended(&self) -> bool {
        self.init_exit.borrow().is_some() || !is_alive(self.record().pid)
    }
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: u32) -> bool {
    let stat = i32::try_from(pid).ok().map(Stat::of);
    matches!(stat, Some(Ok(Some(stat))) if stat.state != TaskState::Ended)
}
