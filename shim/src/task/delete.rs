//! Delete: removes a container that has ended or never started.

use crate::child::reaper::Exit;
use crate::task::Task;
use crate::task::error::Result;
use crate::task::exec_process::Snapshot;

impl Task {
    /// Removes the container. The task must not be used afterwards.
    pub(crate) async fn delete(&self) -> Result<Snapshot> {
        let _lock = self.verb_lock.lock().await;
        let (io, recorded_by_stasis) = {
            let mut record = self.record();
            record.state.may_delete()?;
            (record.io.take(), record.recorded_by_stasis)
        };
        if let Some(io) = io {
            io.finish().await;
        }
        let deleted = if recorded_by_stasis {
            self.runtime.delete_with_record(&self.id).await
        } else {
            self.runtime.delete(&self.id).await
        };
        self.runtime.ignore_if_gone(&self.id, deleted)?;
        self.bundle.unmount()?;
        Ok(self.final_snapshot())
    }

    /// The exit that Delete reports. For a task that never ran it is SIGKILL's, as in containerd's
    /// shim.
    fn final_snapshot(&self) -> Snapshot {
        let mut snapshot = self.snapshot();
        if snapshot.exit.is_none() {
            let exit = *self.init_exit.borrow();
            snapshot.exit = Some(exit.unwrap_or_else(Exit::killed));
        }
        snapshot
    }
}
