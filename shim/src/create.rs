//! Create: makes the container, or prepares what Start restores.

use std::path::PathBuf;
use std::sync::Arc;

use containerd_shim::api::{CreateTaskRequest, Options};
use containerd_shim::io::Stdio;
use containerd_shim::protos::types::mount::Mount;

use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::oci_runtime::OciRuntime;
use crate::options;
use crate::reaper::Watch;
use crate::state::State;
use crate::stdio::Plumbing;
use crate::task::{Surroundings, Task};

/// Creates a task. What was made of one that fails is removed again.
pub(crate) async fn create(
    request: &CreateTaskRequest,
    surroundings: &Surroundings,
) -> Result<Arc<Task>> {
    let options = options::of_task(request.options.as_ref())?;
    let bundle = Bundle::new(&request.bundle);
    options::write(bundle.path(), &options)?;
    let runtime = OciRuntime::find(
        options,
        &bundle,
        &surroundings.namespace,
        &surroundings.reaper,
    )?;
    let state = match image(request, runtime.options())? {
        Some(image) => State::Prepared { image },
        None => State::Created,
    };
    let stdio = Stdio::new(
        &request.stdin,
        &request.stdout,
        &request.stderr,
        request.terminal,
    );
    let task = Task::new(
        request.id.clone(),
        bundle,
        runtime,
        stdio,
        surroundings.clone(),
        state,
    );
    let made = make(&task, &request.rootfs).await;
    if let Err(error) = made {
        if let Err(more) = task.bundle.unmount() {
            log::warn!("after a failed create of {}: {more}", task.id);
        }
        return Err(error);
    }
    Ok(task)
}

/// The image to restore from: containerd hands over the directory that it unpacked, or the caller
/// names one in the options. One that is not there is told now, when the caller can still do
/// something else.
fn image(request: &CreateTaskRequest, options: &Options) -> Result<Option<PathBuf>> {
    let named = [&request.checkpoint, &options.criu_image_path]
        .into_iter()
        .find(|path| !path.is_empty());
    match named.map(PathBuf::from) {
        Some(image) if !image.is_dir() => Err(Error::Invalid(format!(
            "the checkpoint {} is no directory",
            image.display()
        ))),
        image => Ok(image),
    }
}

async fn make(task: &Arc<Task>, mounts: &[Mount]) -> Result<()> {
    task.bundle.mount(mounts)?;
    let to_be_restored = matches!(task.record().state, State::Prepared { .. });
    if to_be_restored {
        return Ok(());
    }
    let (streams, plumbing) = task.prepare_io(&task.stdio).await?;
    let watch = task.surroundings.reaper.watch();
    task.runtime
        .create(&task.id, &task.bundle, streams, plumbing.console())
        .await?;
    take_over(task, plumbing, &watch).await
}

/// The init process that a runtime has made, or restored, is our child now. A container that nobody
/// could ever talk to is removed again.
pub(crate) async fn take_over(task: &Arc<Task>, plumbing: Plumbing, watch: &Watch) -> Result<()> {
    let taken = async {
        let pid = Bundle::read_pid(&task.bundle.init_pid_file())?;
        let io = plumbing.connect().await?;
        task.adopt(pid, io, watch.exit_of(pid));
        Ok(())
    };
    let taken = taken.await;
    if taken.is_err()
        && let Err(more) = task.runtime.delete_by_force(&task.id).await
    {
        log::warn!("{} has no streams and is not removed: {more}", task.id);
    }
    taken
}
