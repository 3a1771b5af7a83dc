//! Delete: removes a container that has ended or never started.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::child::reaper::Exit;
use crate::error::{Error, Result};
use crate::run_blocking::run_blocking;
use crate::runtime::Target;
use crate::task::Task;
use crate::task::exec_process::Snapshot;
use crate::task::kill::SIGKILL;
use crate::task::state::LifecycleState;

/// How far the clock of a caller with a deadline may be ahead.
const CLOCKS: Duration = Duration::from_millis(300);

impl Task {
    /// Removes the container. The task must not be used afterwards.
    pub(crate) async fn delete(self: &Arc<Self>) -> Result<Snapshot> {
        self.end_restore().await;
        let _lock = self.verb_lock.lock().await;
        let (io, through) = {
            let mut record = self.record();
            // Another Delete was waited for, whose caller has tried again.
            if record.is_deleted {
                return Err(Error::NotFound(format!("task {}", self.id)));
            }
            record.state.may_delete()?;
            (record.io.take(), record.through)
        };
        if let Some(io) = io {
            io.finish().await;
        }
        let deleted = self.runtime.delete(&self.id, through).await;
        self.runtime.ignore_if_gone(&self.id, deleted)?;
        self.unmount().await?;
        self.has_gone();
        Ok(self.final_snapshot())
    }

    /// Marks the task as deleted, and answers callers that wait for processes that never started.
    fn has_gone(&self) {
        let mut record = self.record();
        record.is_deleted = true;
        for exec in record.execs.values() {
            exec.task_has_gone();
        }
    }

    /// Unmounts the bundle. Waits a moment if the root file system is in use.
    pub(super) async fn unmount(&self) -> Result<()> {
        let bundle = self.bundle.clone();
        run_blocking(move || bundle.unmount()).await
    }

    /// Ends a restore whose caller has gone: no other caller would ever end the container.
    async fn end_restore(self: &Arc<Self>) {
        let mut caller = match &self.record().state {
            LifecycleState::Restoring { operation, .. } => operation.caller.clone(),
            _ => return,
        };
        // The caller's own clock may be ahead: this may come before its deadline does here.
        if timeout(CLOCKS, caller.changed()).await.is_err() {
            return;
        }
        log::warn!("{} is deleted while it is restored", self.id);
        // Asks the restore to end, and is delivered if the task has been restored all the same.
        if let Err(error) = self.kill(SIGKILL, Target::All).await {
            log::warn!("the restore of {} goes on: {error}", self.id);
        }
        drop(self.restore.lock().await);
        if self.record().pid != 0 {
            self.wait().await;
        }
    }

    /// Returns the exit that Delete reports: SIGKILL's for a task that never ran, as in
    /// containerd's shim.
    fn final_snapshot(&self) -> Snapshot {
        let mut snapshot = self.snapshot();
        if snapshot.exit.is_none() {
            let exit = *self.init_exit.borrow();
            snapshot.exit = Some(exit.unwrap_or_else(Exit::killed));
        }
        snapshot
    }
}
