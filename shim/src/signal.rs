//! Kill: signals for the init process, also while an operation is under way.

use crate::error::{Error, Result};
use crate::operation::{PendingSignal, Target};
use crate::task::Task;

/// The signal that nothing survives.
pub(crate) const SIGKILL: u32 = 9;

impl Task {
    /// Sends a signal to the init process. During an operation it is answered at once and delivered
    /// when the operation is over.
    pub(crate) async fn kill(&self, signal: u32, target: Target) -> Result<()> {
        // An operation does not keep the turn.
        let _turn = self.turn.lock().await;
        {
            let mut record = self.record();
            if let Some(operation) = record.state.operation() {
                operation.signal(PendingSignal { signal, target });
                return Ok(());
            }
            if record.pid == 0 {
                return Err(Error::NotFound(format!("a process of {}", self.id)));
            }
            if record.ended.is_some() {
                return Err(Error::Finished(self.id.clone()));
            }
        }
        self.deliver(signal, target).await
    }

    /// Sends a signal through the low-level runtime, which knows how to reach a frozen process.
    pub(crate) async fn deliver(&self, signal: u32, target: Target) -> Result<()> {
        let sent = self.runtime.kill(&self.id, signal, target).await;
        match sent {
            // It ended meanwhile: the runtime's words for that differ, the fact does not.
            Err(_) if self.has_ended() => Err(Error::Finished(self.id.clone())),
            other => Ok(other?),
        }
    }

    fn has_ended(&self) -> bool {
        let record = self.record();
        record.ended.is_some() || !is_alive(record.pid)
    }
}

/// Whether a process is there and not merely waiting to be reaped.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // "pid (comm) state ...": comm may hold anything.
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}
