//! Checkpoint: the engine dumps the task, and nobody waits for it but the caller.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use containerd_shim::api::CheckpointTaskRequest;
use containerd_shim::protos::events::task::TaskCheckpointed;
use containerd_shim::protos::shim::oci::CheckpointOptions;

use crate::call::Begun;
use crate::error::{Error, Result};
use crate::oci_runtime::RuntimeError;
use crate::operation::Operation;
use crate::options;
use crate::task::Task;

/// CRIU's log in its work directory.
const CRIU_LOG: &str = "dump.log";
/// Where it is kept in the bundle when a checkpoint failed, as containerd's shim does.
const KEPT_LOG: &str = "criu-dump.log";

/// Checkpoints a task.
pub(crate) async fn checkpoint(task: &Arc<Task>, request: &CheckpointTaskRequest) -> Result<()> {
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
    let begun = begin(task, &image, work.path(), &options).await?;
    let outcome = begun.finish().await;
    end(task).await;
    match outcome {
        Ok(_) => {
            task.events().publish(TaskCheckpointed {
                container_id: task.id.clone(),
                checkpoint: image.to_string_lossy().into_owned(),
                ..TaskCheckpointed::default()
            });
            // Told after the checkpoint: its end follows from it.
            task.tell_end();
            Ok(())
        }
        Err(error) => {
            task.tell_end();
            Err(work.keep_log(task, error).into())
        }
    }
}

async fn begin(
    task: &Arc<Task>,
    image: &Path,
    work: &Path,
    options: &CheckpointOptions,
) -> Result<Begun> {
    let _turn = task.turn.lock().await;
    let mut record = task.record();
    record.state.may_checkpoint()?;
    let begun = task
        .runtime
        .begin_checkpoint(&task.id, image, work, options)?;
    let operation = Operation::of(begun.pid()).map_err(Error::io("watch the checkpoint"))?;
    record.operated = true;
    record.state.begin_checkpoint(operation)?;
    Ok(begun)
}

/// Signals that came meanwhile reach the task now, if it is still there.
async fn end(task: &Arc<Task>) {
    let _turn = task.turn.lock().await;
    let operation = task.record().state.end_checkpoint();
    for signal in operation.map(Operation::into_pending).unwrap_or_default() {
        if let Err(error) = task.deliver(signal.signal, signal.target).await {
            log::info!("signal {} for {}: {error}", signal.signal, task.id);
        }
    }
}

/// CRIU's work directory.
enum Work {
    /// The caller's.
    Given(PathBuf),
    /// Ours, removed afterwards.
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
        make().map(Work::Own).map_err(Error::io(format!(
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

    /// Keeps CRIU's log of a checkpoint that failed, unless the engine did.
    fn keep_log(&self, task: &Task, mut error: RuntimeError) -> RuntimeError {
        let (Work::Own(directory), RuntimeError::Failed { complaint, .. }) = (self, &mut error)
        else {
            return error;
        };
        let kept = task.bundle.path().join(KEPT_LOG);
        if complaint.criu_log.is_none()
            && std::fs::copy(directory.path().join(CRIU_LOG), &kept).is_ok()
        {
            complaint.name_criu_log(&kept);
        }
        error
    }
}
