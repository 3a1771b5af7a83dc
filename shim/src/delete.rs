//! Delete: removes a container of which nothing runs any more.

use crate::error::Result;
use crate::exec::Snapshot;
use crate::reaper::Exit;
use crate::task::Task;

impl Task {
    /// Removes the container. Afterwards the task must not be used any more.
    pub(crate) async fn delete(&self) -> Result<Snapshot> {
        let _turn = self.turn.lock().await;
        let (io, operated) = {
            let mut record = self.record();
            record.state.may_delete()?;
            (record.io.take(), record.operated)
        };
        if let Some(io) = io {
            io.finish().await;
        }
        let deleted = if operated {
            self.runtime.delete_operated(&self.id).await
        } else {
            self.runtime.delete(&self.id).await
        };
        self.runtime.unless_gone(&self.id, deleted)?;
        self.bundle.unmount()?;
        self.gone.notify_one();
        Ok(self.end_of_unstarted())
    }

    /// A task that never ran is told to have been killed, as containerd's shim does.
    fn end_of_unstarted(&self) -> Snapshot {
        let mut snapshot = self.snapshot();
        if snapshot.exit.is_none() {
            let ended = self.record().ended;
            snapshot.exit = Some(ended.unwrap_or_else(Exit::killed));
        }
        snapshot
    }
}
