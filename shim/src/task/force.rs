//! Force: ends a checkpoint or restore by a low-level runtime that hangs, and removes a container
//! that is of no use.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use crate::cgroup;
use crate::run_blocking::run_blocking;
use crate::runtime::process::RuntimeProcess;
use crate::task::Task;

/// How long a low-level runtime may go on with a checkpoint or restore of a task that was killed.
const AFTER_KILL: Duration = Duration::from_secs(10);
/// Killed processes end within milliseconds. One in an uninterruptible wait (state D) is given up.
const ENDING: Duration = Duration::from_secs(1);

impl Task {
    /// Ends an operation of a task that was killed if it is the low-level runtime's alone, which
    /// has no deadline: SIGKILL is the way out. `stasis-runtime` has been asked to roll back.
    pub(super) fn end_if_it_hangs(self: &Arc<Self>, process: Arc<RuntimeProcess>) {
        let task = Arc::clone(self);
        tokio::spawn(async move {
            sleep(AFTER_KILL).await;
            if !process.is_low_level() || !task.is_at(&process) {
                return;
            }
            log::error!("the low-level runtime hangs, and {} is killed", task.id);
            // Fails only if it has ended.
            let _ = process.signal(Signal::KILL);
            task.kill_cgroup().await;
            task.remove_by_force().await;
        });
    }

    fn is_at(&self, process: &Arc<RuntimeProcess>) -> bool {
        let mut record = self.record();
        let operation = record.state.operation();
        operation.is_some_and(|operation| operation.is_of(process))
    }

    /// Kills what is in the container's cgroup, and the CRIU that dumps it: a CRIU whose runtime
    /// was killed goes on, and the low-level runtime knows no container that is half restored.
    async fn kill_cgroup(&self) {
        let Ok(path) = self.bundle.cgroups_path() else {
            return;
        };
        let id = self.id.clone();
        let kill = move || cgroup::own(path.as_deref(), &id).map(|cgroup| cgroup.kill(ENDING));
        if let Err(error) = run_blocking(kill).await {
            log::warn!("{}: {error}", self.id);
        }
    }

    /// Removes a container that is of no use: one without streams, one whose runtime was killed,
    /// or, of a runtime that was killed early, a directory without a state.
    pub(super) async fn remove_by_force(&self) {
        if let Err(error) = self.runtime.delete_by_force(&self.id, &self.bundle).await {
            log::warn!("{} is of no use and cannot be removed: {error}", self.id);
        }
    }
}
