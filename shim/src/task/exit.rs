//! The exit of a task: when its init process ends, and when TaskExit is published.

use std::sync::Arc;
use std::time::Duration;

use containerd_shim::api::Status;
use containerd_shim::protos::events::task::TaskExit;
use containerd_shim::protos::protobuf::MessageField;
use tokio::time::{sleep, timeout};

use crate::bundle::Through;
use crate::cgroup::{Cgroup, controllers};
use crate::child::reaper::{Exit, PendingExit};
use crate::error::Error;
use crate::run_blocking::run_blocking;
use crate::runtime::Target;
use crate::stdio::Io;
use crate::task::Task;
use crate::task::exec_process::wait_for_exit;
use crate::task::kill::SIGKILL;
use crate::task::state::LifecycleState;

/// How long the clean-up after the init process may hold up the news of its exit.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// How long a verb for the running task may go on after the init process has ended.
const AFTER_INIT: Duration = Duration::from_secs(2);

impl Task {
    /// Records the init process and waits for its exit.
    pub(crate) async fn track_init(self: &Arc<Self>, pid: u32, io: Io, exit: PendingExit) {
        let cgroup = run_blocking(move || {
            let cgroup = Cgroup::of_process(pid)?;
            controllers::enable_in_ancestors(&cgroup);
            Ok::<_, Error>(cgroup)
        });
        // A process that has ended is in no cgroup, and needs no statistics.
        let cgroup = cgroup
            .await
            .inspect_err(|error| log::warn!("no statistics of {}: {error}", self.id))
            .ok();
        let mut record = self.record();
        record.pid = pid;
        record.io = Some(io);
        record.cgroup = cgroup;
        drop(record);
        let (task, watch) = (Arc::clone(self), self.watch_memory());
        tokio::spawn(async move {
            let exit = task.publish_ooms_until(exit, watch).await;
            task.init_exited(exit).await;
        });
    }

    /// Waits for no lock: a verb whose runtime hangs must not keep the exit from being told. Nor
    /// may the clean-up after the init process, which goes on beside then.
    async fn init_exited(self: &Arc<Self>, exit: Exit) {
        self.init_exit.send_replace(Some(exit));
        if let Some(io) = &self.record().io {
            io.process_exited();
        }
        let task = Arc::clone(self);
        let cleaning = tokio::spawn(async move { task.clean_up_after_init().await });
        if timeout(CLEAN_UP, cleaning).await.is_err() {
            log::warn!("the low-level runtime hangs after the end of {}", self.id);
        }
        self.publish_exit_if_done();
    }

    async fn clean_up_after_init(&self) {
        let was_paused = matches!(self.record().state, LifecycleState::Paused);
        // Without a pid namespace of the container's own, its other processes outlive the init
        // process, and hold what it held: GPU memory, for example.
        if !self.bundle.has_own_pid_namespace().unwrap_or(false) {
            // It must not ask a checkpoint that has ended the init process to give up its image.
            let (through, all) = (Through::LowLevel, Target::All);
            let killed = self.runtime.kill(&self.id, through, SIGKILL, all).await;
            if let Err(error) = killed {
                log::warn!("processes of {} may have survived it: {error}", self.id);
            }
        }
        if was_paused {
            self.thaw().await;
        }
    }

    /// Thaws it if its init process ended while it was paused: runc deletes no container whose
    /// cgroup is frozen, not even one without processes.
    pub(crate) async fn thaw_if_ended(&self) {
        let ended = self.init_exit.borrow().is_some();
        if ended && self.snapshot().status == Status::PAUSED {
            self.thaw().await;
        }
    }

    async fn thaw(&self) {
        if let Err(error) = self.runtime.thaw(&self.id).await {
            log::warn!("{} ended paused, and its cgroup stays so: {error}", self.id);
        }
    }

    /// Waits until a verb for the running task has become useless. A low-level runtime ends by
    /// itself when the init process has, unless it is stopped or hangs.
    pub(crate) async fn useless(&self) -> &'static str {
        wait_for_exit(&self.init_exit).await;
        sleep(AFTER_INIT).await;
        "the container's init process has ended"
    }

    /// Publishes the exit of the task if its init process has ended, the exits of its other
    /// processes are published, and neither its start nor an operation is under way.
    pub(crate) fn publish_exit_if_done(&self) {
        let Some(exit) = *self.init_exit.borrow() else {
            return;
        };
        let mut record = self.record();
        let waits = record.execs.values().any(|exec| exec.is_running())
            || matches!(record.state, LifecycleState::Starting)
            || record.state.operation().is_some()
            || record.state.exit().is_some();
        if waits {
            return;
        }
        record.state = LifecycleState::Stopped(exit);
        let pid = record.pid;
        drop(record);
        self.publish_exit(self.id.clone(), pid, exit);
        self.exit.send_replace(Some(exit));
    }

    /// Publishes the exit of a process.
    pub(crate) fn publish_exit(&self, id: String, pid: u32, exit: Exit) {
        self.events().publish(TaskExit {
            container_id: self.id.clone(),
            id,
            pid,
            exit_status: exit.status,
            exited_at: MessageField::some(exit.at.into()),
            ..TaskExit::default()
        });
    }
}
