//! Start: starts the user's program, or restores it from its checkpoint.

use std::path::Path;
use std::sync::Arc;

use containerd_shim::protos::events::task::TaskStart;

use tokio::sync::OwnedMutexGuard;

use crate::bundle::Through;
use crate::child::reaper::ExitWatch;
use crate::error::{Error, Result};
use crate::runtime::call::RunningCall;
use crate::stdio::PendingIo;
use crate::task::Task;
use crate::task::create::attach_init;
use crate::task::operation::{Caller, Operation};
use crate::task::state::{LifecycleState, StartFrom};

/// Starts a task's init process; returns its pid.
pub(crate) async fn start(task: &Arc<Task>, caller: Caller) -> Result<u32> {
    let lock = task.verb_lock.lock().await;
    let from = task.record().state.may_start()?;
    match from {
        StartFrom::Created => {
            let through = {
                let mut record = task.record();
                record.state = LifecycleState::Starting;
                record.through
            };
            let started = task.runtime.start(&task.id, through).await;
            task.record().state = match started {
                Ok(()) => LifecycleState::Running,
                Err(_) => LifecycleState::Created,
            };
            if let Err(error) = started {
                task.publish_exit_if_done();
                return Err(error);
            }
        }
        StartFrom::Image(image) => {
            let restore = begin_restore(task, &image, caller).await?;
            // From here on the state Restoring refuses other verbs, which need the lock for that.
            drop(lock);
            return restore.finish(task).await;
        }
    }
    let pid = publish_start(task);
    // The init process may have ended meanwhile.
    task.publish_exit_if_done();
    Ok(pid)
}

fn publish_start(task: &Arc<Task>) -> u32 {
    let pid = task.record().pid;
    task.events().publish(TaskStart {
        container_id: task.id.clone(),
        pid,
        ..TaskStart::default()
    });
    pid
}

/// A restore that is under way.
struct Restore {
    call: RunningCall,
    watch: ExitWatch,
    pending_io: PendingIo,
    /// Delete waits for it.
    _under_way: OwnedMutexGuard<()>,
}

async fn begin_restore(task: &Arc<Task>, image: &Path, caller: Caller) -> Result<Restore> {
    let (streams, pending_io) = task.prepare_io(&task.id, &task.stdio).await?;
    let under_way = Arc::clone(&task.restore).lock_owned().await;
    let work = task.bundle.work();
    std::fs::create_dir_all(&work).map_err(Error::cannot(format!("make {}", work.display())))?;
    let watch = task.context.reaper.watch();
    let call =
        task.runtime
            .start_restore(&task.id, &task.bundle, image, streams, pending_io.console())?;
    let process = call.process().map_err(Error::cannot("watch the restore"))?;
    let operation = Operation::of(process, caller);
    let mut record = task.record();
    record.through = Through::Stasis;
    record.state.begin_restore(operation)?;
    Ok(Restore {
        call,
        watch,
        pending_io,
        _under_way: under_way,
    })
}

impl Restore {
    async fn finish(self, task: &Arc<Task>) -> Result<u32> {
        let restored = self.call.wait().await;
        let attached = match restored {
            Ok(_) => attach_init(task, self.pending_io, &self.watch).await,
            Err(error) => Err(error),
        };
        let _lock = task.verb_lock.lock().await;
        let outcome = attached.as_ref().map(drop).map_err(drop);
        let operation = task.record().state.end_restore(outcome);
        attached?;
        let pid = publish_start(task);
        // Their callers were answered at once; the signals were queued.
        let pending = operation.map(|mut operation| operation.take_pending());
        for signal in pending.unwrap_or_default() {
            if let Err(error) = task.deliver(signal.signal, signal.target).await {
                log::warn!(
                    "signal {} did not reach {}: {error}",
                    signal.signal,
                    task.id
                );
            }
        }
        // The init process may have ended before the task was in the state Running.
        task.publish_exit_if_done();
        Ok(pid)
    }
}
