//! Start: the user's program begins, or goes on from its checkpoint.

use std::path::Path;
use std::sync::Arc;

use containerd_shim::protos::events::task::TaskStart;

use crate::call::Begun;
use crate::controllers;
use crate::create::take_over;
use crate::error::{Error, Result};
use crate::operation::Operation;
use crate::reaper::Watch;
use crate::state::{StartFrom, State};
use crate::stdio::Plumbing;
use crate::task::Task;

/// Starts a task's init process; gives its pid.
pub(crate) async fn start(task: &Arc<Task>) -> Result<u32> {
    let turn = task.turn.lock().await;
    let from = task.record().state.may_start()?;
    match from {
        StartFrom::Created => {
            task.runtime.start(&task.id).await?;
            task.record().state = State::Running;
        }
        StartFrom::Image(image) => {
            let restore = begin_restore(task, &image).await?;
            // From here on the state keeps others out, and the turn is free for those who ask.
            drop(turn);
            return restore.finish(task).await;
        }
    }
    announce(task)
}

fn announce(task: &Arc<Task>) -> Result<u32> {
    if let Some(cgroup) = &task.record().cgroup {
        controllers::hand_on(cgroup);
    }
    task.watch_memory();
    let pid = task.record().pid;
    task.events().publish(TaskStart {
        container_id: task.id.clone(),
        pid,
        ..TaskStart::default()
    });
    Ok(pid)
}

/// A restore that is under way.
struct Restore {
    begun: Begun,
    watch: Watch,
    plumbing: Plumbing,
}

async fn begin_restore(task: &Arc<Task>, image: &Path) -> Result<Restore> {
    let (streams, plumbing) = task.prepare_io(&task.stdio).await?;
    let work = task.bundle.work();
    std::fs::create_dir_all(&work).map_err(Error::io(format!("make {}", work.display())))?;
    let watch = task.surroundings.reaper.watch();
    let begun =
        task.runtime
            .begin_restore(&task.id, &task.bundle, image, streams, plumbing.console())?;
    let operation = Operation::of(begun.pid()).map_err(Error::io("watch the restore"))?;
    let mut record = task.record();
    record.operated = true;
    record.state.begin_restore(operation)?;
    Ok(Restore {
        begun,
        watch,
        plumbing,
    })
}

impl Restore {
    async fn finish(self, task: &Arc<Task>) -> Result<u32> {
        let restored = self.begun.finish().await;
        let came_back = match restored {
            Ok(_) => take_over(task, self.plumbing, &self.watch).await,
            Err(error) => Err(error.into()),
        };
        let _turn = task.turn.lock().await;
        let outcome = came_back.as_ref().map(drop).map_err(drop);
        let operation = task.record().state.end_restore(outcome);
        came_back?;
        let pid = announce(task)?;
        // Callers who signalled meanwhile were told that the task will get it.
        for signal in operation.map(Operation::into_pending).unwrap_or_default() {
            if let Err(error) = task.deliver(signal.signal, signal.target).await {
                log::warn!(
                    "signal {} did not reach {}: {error}",
                    signal.signal,
                    task.id
                );
            }
        }
        // It may have ended before it was told to run.
        task.tell_end();
        Ok(pid)
    }
}
