//! Create: makes the container, or prepares what Start restores.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use containerd_shim::api::{CreateTaskRequest, Options};
use containerd_shim::io::Stdio;

use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::oci_runtime::OciRuntime;
use crate::options;
use crate::task::{Parts, Surroundings, Task};

/// Creates a task. What was made of one that fails is removed again.
pub(crate) async fn create(
    request: &CreateTaskRequest,
    surroundings: &Surroundings,
) -> Result<Arc<Task>> {
    let options = options::of_task(request.options.as_ref())?;
    let bundle = Bundle::new(&request.bundle);
    options::write(bundle.path(), &options)?;
    let runtime = OciRuntime::find(
        options.clone(),
        &bundle,
        &surroundings.namespace,
        &surroundings.reaper,
    )?;
    let image = image(request, &options);
    let parts = Parts {
        id: request.id.clone(),
        bundle: bundle.clone(),
        runtime,
        options,
        stdio: Stdio::new(
            &request.stdin,
            &request.stdout,
            &request.stderr,
            request.terminal,
        ),
        surroundings: surroundings.clone(),
    };
    let task = Task::new(parts, image);
    let made = match bundle.mount(&request.rootfs) {
        Ok(()) => make(&task).await,
        Err(error) => Err(error),
    };
    if let Err(error) = made {
        if let Err(more) = bundle.unmount() {
            log::warn!("after a failed create of {}: {more}", task.id);
        }
        return Err(error);
    }
    Ok(task)
}

/// The image to restore from: containerd hands over the directory that it unpacked, or the caller
/// names one in the options.
fn image(request: &CreateTaskRequest, options: &Options) -> Option<PathBuf> {
    [&request.checkpoint, &options.criu_image_path]
        .into_iter()
        .find(|path| !path.is_empty())
        .map(PathBuf::from)
}

async fn make(task: &Arc<Task>) -> Result<()> {
    if let Some(image) = &task.record().image {
        return check_image(image);
    }
    let (streams, plumbing) = task.prepare_io(&task.stdio).await?;
    let watch = task.surroundings.reaper.watch();
    let created = task
        .runtime
        .create(&task.id, &task.bundle, streams, plumbing.console())
        .await;
    created?;
    let pid = Bundle::read_pid(&task.bundle.init_pid_file())?;
    let connected = plumbing.connect().await;
    let io = match connected {
        Ok(io) => io,
        Err(error) => {
            // The container is there, but nobody could ever talk to it.
            if let Err(more) = task.runtime.delete_by_force(&task.id).await {
                log::warn!("after a failed create of {}: {more}", task.id);
            }
            return Err(error);
        }
    };
    task.adopt(pid, io, watch.exit_of(pid));
    Ok(())
}

/// An image that is not there is told now, when the caller can still do something else.
fn check_image(image: &Path) -> Result<()> {
    if image.is_dir() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the checkpoint {} is no directory",
        image.display()
    )))
}
