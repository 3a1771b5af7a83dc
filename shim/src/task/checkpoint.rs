//! Checkpoint: `stasis-runtime` dumps the task; meanwhile other verbs are answered at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use containerd_shim::api::CheckpointTaskRequest;
use containerd_shim::protos::events::task::TaskCheckpointed;
use containerd_shim::protos::shim::oci::CheckpointOptions;

use crate::bundle::Through;
use crate::error::{Error, Result};
use crate::run_blocking::run_blocking;
use crate::runtime::call::RunningCall;
use crate::runtime::options;
use crate::task::Task;
use crate::task::operation::{Caller, Operation};
use crate::task::state::LifecycleState;

/// CRIU's log in its work directory.
const CRIU_LOG: &str = "dump.log";
/// The copy in the bundle of the log of a failed checkpoint, as in containerd's shim.
const KEPT_LOG: &str = "criu-dump.log";

/// Checkpoints a task. If its caller has gone, or does not resume it before its `deadline`, a task
/// that the caller paused is resumed later.
pub(crate) async fn checkpoint(
    task: &Arc<Task>,
    request: &CheckpointTaskRequest,
    caller: Caller,
    deadline: Option<Instant>,
) -> Result<()> {
    // The deadline of a Pause that belongs to this call is that of this call. A pause that is meant
    // has none, or it has passed.
    let paused_until = task.record().paused_until;
    let deadline = deadline.filter(|_| paused_until.is_some_and(|until| until > Instant::now()));
    let options = options::of_checkpoint(request.options.as_ref())?;
    let image = match request.path.as_str() {
        "" => PathBuf::from(&options.image_path),
        path => PathBuf::from(path),
    };
    if !image.is_absolute() {
        return Err(Error::Invalid(format!(
            "the checkpoint's directory {image:?} is not an absolute path"
        )));
    }
    let work = Work::of(task, &options)?;
    let call = begin(task, &image, work.path(), &options, &caller).await?;
    let outcome = call.wait().await;
    end(task).await;
    let gone = match caller.has_changed() {
        Ok(_) => deadline,
        Err(_) => Some(Instant::now()),
    };
    if let Some(gone) = gone {
        task.resume_later(gone);
    }
    match outcome {
        Ok(_) => {
            task.events().publish(TaskCheckpointed {
                container_id: task.id.clone(),
                checkpoint: image.to_string_lossy().into_owned(),
                ..TaskCheckpointed::default()
            });
            // After TaskCheckpointed, because a checkpoint may end the task.
            task.publish_exit_if_done();
            Ok(())
        }
        Err(error) => {
            task.publish_exit_if_done();
            Err(work.keep_log(task, error).await)
        }
    }
}

async fn begin(
    task: &Arc<Task>,
    image: &Path,
    work: &Path,
    options: &CheckpointOptions,
    caller: &Caller,
) -> Result<RunningCall> {
    let _no_starts = task.without_exec_starts().await?;
    let _lock = task.verb_lock.lock().await;
    let mut record = task.record();
    record.state.may_checkpoint()?;
    let call = task
        .runtime
        .start_checkpoint(&task.id, image, work, options)?;
    let process = call
        .process()
        .map_err(Error::cannot("watch the checkpoint"))?;
    let operation = Operation::of(process, caller.clone());
    record.through = Through::Stasis;
    record.state.begin_checkpoint(operation)?;
    Ok(call)
}

/// Sends the signals that came meanwhile, and leaves the state Checkpointing. In this order: until
/// then other signals queue up behind these, and the exit that a signal causes is not reported
/// before TaskCheckpointed.
async fn end(task: &Arc<Task>) {
    let _lock = task.verb_lock.lock().await;
    loop {
        let pending = task.record().state.operation().map(Operation::take_pending);
        let pending = pending.unwrap_or_default();
        if pending.is_empty() {
            break;
        }
        for signal in pending {
            if let Err(error) = task.deliver(signal.signal, signal.target).await {
                log::info!("signal {} for {}: {error}", signal.signal, task.id);
            }
        }
    }
    task.thaw_if_ended().await;
    let mut record = task.record();
    record.state.end_checkpoint();
    let is_paused = matches!(record.state, LifecycleState::Paused);
    record.checkpointed_paused = is_paused.then(Instant::now);
}

/// CRIU's work directory.
enum Work {
    /// The caller named it.
    Given(PathBuf),
    /// A directory in the bundle, removed afterwards.
    Own(tempfile::TempDir),
}

impl Work {
    fn of(task: &Task, options: &CheckpointOptions) -> Result<Self> {
        if !options.work_path.is_empty() {
            return Ok(Work::Given(PathBuf::from(&options.work_path)));
        }
        let parent = task.bundle.work();
        let make = || {
            std::fs::create_dir_all(&parent)?;
            tempfile::Builder::new().prefix("criu-").tempdir_in(&parent)
        };
        let made = make().map(Work::Own);
        made.map_err(Error::cannot(format!(
            "make a directory in {}",
            parent.display()
        )))
    }

    fn path(&self) -> &Path {
        match self {
            Work::Given(path) => path,
            Work::Own(directory) => directory.path(),
        }
    }

    /// Keeps CRIU's log of a failed checkpoint, unless `stasis-runtime` has.
    async fn keep_log(&self, task: &Task, mut error: Error) -> Error {
        let (Work::Own(directory), Error::Runtime { message, .. }) = (self, &mut error) else {
            return error;
        };
        let kept = task.bundle.path().join(KEPT_LOG);
        let (log, copy) = (directory.path().join(CRIU_LOG), kept.clone());
        if message.criu_log.is_none()
            && run_blocking(move || std::fs::copy(log, copy)).await.is_ok()
        {
            message.name_criu_log(&kept);
        }
        error
    }
}
