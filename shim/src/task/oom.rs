//! TaskOOM: published when the kernel kills a process of the task for lack of memory.

use std::pin::pin;

use containerd_shim::protos::events::task::TaskOOM;

use crate::cgroup::oom::OomWatch;
use crate::child::reaper::{Exit, PendingExit};
use crate::task::Task;

impl Task {
    /// Starts to watch its cgroup. Call it before the user's program runs: on v1 the kernel tells
    /// of later kills only.
    pub(crate) fn watch_memory(&self) -> Option<OomWatch> {
        let watch = self.record().cgroup.as_ref().map(OomWatch::start)?;
        // A host without a memory controller can run containers, too.
        watch
            .inspect_err(|error| log::warn!("no OOM events of {}: {error}", self.id))
            .ok()
    }

    /// Waits for the exit of the init process, and publishes TaskOOM until then. The kernel may
    /// tell of the exit first, so there is a last look: clients read why a container has ended when
    /// they see TaskExit (kubelet's "OOMKilled", Docker's `.State.OOMKilled`).
    pub(crate) async fn publish_ooms_until(
        &self,
        exit: PendingExit,
        watch: Option<OomWatch>,
    ) -> Exit {
        let Some(mut watch) = watch else {
            return exit.wait().await;
        };
        let mut exit = pin!(exit.wait());
        let ended = loop {
            tokio::select! {
                exit = &mut exit => break exit,
                notice = watch.next() => match notice {
                    Ok(Some(())) => self.publish_oom(),
                    Ok(None) => return exit.await,
                    Err(error) => {
                        log::warn!("no more OOM events of {}: {error}", self.id);
                        return exit.await;
                    }
                },
            }
        };
        match watch.look() {
            Ok(true) => self.publish_oom(),
            Ok(false) => {}
            Err(error) => log::warn!("whether {} ran out of memory: {error}", self.id),
        }
        ended
    }

    fn publish_oom(&self) {
        self.events().publish(TaskOOM {
            container_id: self.id.clone(),
            ..TaskOOM::default()
        });
    }
}
