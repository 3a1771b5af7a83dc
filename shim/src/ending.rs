//! The end of a task: when its init process ends, and when that is told.

use std::sync::Arc;

use containerd_shim::protos::events::task::TaskExit;

use crate::cgroup::Cgroup;
use crate::operation::Target;
use crate::reaper::{Exit, Pending};
use crate::signal::SIGKILL;
use crate::state::State;
use crate::stdio::Io;
use crate::task::Task;
use crate::timestamp;

impl Task {
    /// The init process is there: remembers it and waits for its end.
    pub(crate) fn adopt(self: &Arc<Self>, pid: u32, io: Io, exit: Pending) {
        // A process that has ended already is in no cgroup any more, and nothing is lost by that.
        let cgroup = Cgroup::of_process(pid)
            .inspect_err(|error| log::warn!("no statistics of {}: {error}", self.id))
            .ok();
        let mut record = self.record();
        record.pid = pid;
        record.io = Some(io);
        record.cgroup = cgroup;
        drop(record);
        let task = Arc::clone(self);
        tokio::spawn(async move {
            let exit = exit.wait().await;
            task.init_ended(exit).await;
        });
    }

    async fn init_ended(&self, exit: Exit) {
        // In turn, so that the event of a start that is under way comes first.
        let turn = self.turn.lock().await;
        let others = {
            let mut record = self.record();
            record.ended = Some(exit);
            record.execs.values().any(|exec| exec.is_running())
        };
        // Processes outside a pid namespace of the container's own outlive the init process.
        if others && !self.bundle.has_own_pid_namespace().unwrap_or(true) {
            let killed = self.runtime.kill(&self.id, SIGKILL, Target::All).await;
            if let Err(error) = killed {
                log::warn!("processes of {} may have survived it: {error}", self.id);
            }
        }
        drop(turn);
        self.tell_end();
    }

    /// Tells that the task has ended, once there is nothing left to wait for: the exits of its
    /// other processes come first, and an operation under way has to be over.
    pub(crate) fn tell_end(&self) {
        let mut record = self.record();
        let Some(exit) = record.ended else { return };
        let waits = record.execs.values().any(|exec| exec.is_running())
            || record.state.operation().is_some()
            || record.state.exit().is_some();
        if waits {
            return;
        }
        record.state = State::Stopped(exit);
        let pid = record.pid;
        drop(record);
        self.publish_exit(self.id.clone(), pid, exit);
        self.exit.send_replace(Some(exit));
    }

    /// Tells the end of a process.
    pub(crate) fn publish_exit(&self, id: String, pid: u32, exit: Exit) {
        self.events().publish(TaskExit {
            container_id: self.id.clone(),
            id,
            pid,
            exit_status: exit.status,
            exited_at: timestamp::field(exit.at),
            ..TaskExit::default()
        });
    }
}
