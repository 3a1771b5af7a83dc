//! TaskOOM: published when the kernel kills a process of the task for lack of memory.

use std::sync::Arc;

use containerd_shim::protos::events::task::TaskOOM;

use crate::cgroup::oom::OomWatch;
use crate::task::Task;

impl Task {
    /// Publishes TaskOOM events until the cgroup is removed or the task is deleted.
    pub(crate) fn watch_memory(self: &Arc<Self>) {
        let watch = self.record().cgroup.as_ref().map(OomWatch::start);
        let mut watch = match watch {
            Some(Ok(watch)) => watch,
            // A host without a memory controller can run containers, too.
            Some(Err(error)) => return log::warn!("no OOM events of {}: {error}", self.id),
            None => return,
        };
        let task = Arc::clone(self);
        tokio::spawn(async move {
            let deleted = task.deleted.notified();
            let kills = async {
                while let Ok(Some(())) = watch.next().await {
                    task.events().publish(TaskOOM {
                        container_id: task.id.clone(),
                        ..TaskOOM::default()
                    });
                }
            };
            // On v2 the kernel does not notify that a cgroup is removed.
            tokio::select! {
                () = kills => {}
                () = deleted => {}
            }
        });
    }
}
