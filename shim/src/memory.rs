//! Notices that a task ran out of memory.

use std::sync::Arc;

use containerd_shim::protos::events::task::TaskOOM;

use crate::oom::OomWatch;
use crate::task::Task;

impl Task {
    /// Reports kills for want of memory, until the cgroup or the task is gone.
    pub(crate) fn watch_memory(self: &Arc<Self>) {
        let watch = self.record().cgroup.as_ref().map(OomWatch::start);
        let mut watch = match watch {
            Some(Ok(watch)) => watch,
            // Hosts without a memory controller are rare, and of use nevertheless.
            Some(Err(error)) => return log::warn!("no OOM events of {}: {error}", self.id),
            None => return,
        };
        let task = Arc::clone(self);
        tokio::spawn(async move {
            let gone = task.gone.notified();
            let kills = async {
                while let Ok(Some(())) = watch.next().await {
                    task.events().publish(TaskOOM {
                        container_id: task.id.clone(),
                        ..TaskOOM::default()
                    });
                }
            };
            // The kernel does not always tell that a cgroup is gone.
            tokio::select! {
                () = kills => {}
                () = gone => {}
            }
        });
    }
}
