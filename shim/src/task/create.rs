//! Create: makes the container, or prepares the restore that Start carries out.

use std::path::PathBuf;
use std::sync::Arc;

use containerd_shim::api::{CreateTaskRequest, Options};
use containerd_shim::io::Stdio;
use containerd_shim::protos::types::mount::Mount;
use rustix::process::Signal;
use tokio::time::sleep;

use crate::bundle::Bundle;
use crate::child::reaper::ExitWatch;
use crate::error::{Error, Result};
use crate::run_blocking::run_blocking;
use crate::runtime::{LONG, OciRuntime, options};
use crate::stdio::PendingIo;
use crate::task::operation::Caller;
use crate::task::state::LifecycleState;
use crate::task::{ShimContext, Task};

/// Creates a task. If it fails, or its caller goes, what was made is removed again.
pub(crate) async fn create(
    request: &CreateTaskRequest,
    context: &ShimContext,
    caller: Caller,
) -> Result<Arc<Task>> {
    if !request.parent_checkpoint.is_empty() {
        return Err(Error::Invalid(
            "a checkpoint with a parent cannot be restored by this shim".to_owned(),
        ));
    }
    let options = options::decode(request.options.as_ref())?;
    let bundle = Bundle::new(&request.bundle);
    let runtime = OciRuntime::find(options, &bundle, &context.namespace, &context.reaper)?;
    options::write(bundle.path(), &runtime.options, runtime.program())?;
    let state = match image(request, &runtime.options, &bundle).await? {
        Some(image) => LifecycleState::Prepared { image },
        None => LifecycleState::Created,
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
        context.clone(),
        state,
    );
    let made = create_container(&task, &request.rootfs, caller).await;
    if let Err(error) = made {
        if let Err(more) = task.unmount().await {
            log::warn!("after a failed create of {}: {more}", task.id);
        }
        return Err(error);
    }
    Ok(task)
}

/// The image to restore from: the directory that containerd unpacked, or the one that the options
/// name. A missing one is an error of Create, so that the caller learns of it before Start.
async fn image(
    request: &CreateTaskRequest,
    options: &Options,
    bundle: &Bundle,
) -> Result<Option<PathBuf>> {
    let mut of_options = options.criu_image_path.as_str();
    if !of_options.is_empty() && bundle.image_of_all().is_ok_and(|all| all == of_options) {
        log::warn!(
            "CriuImagePath = {of_options:?} of the runtime's options would make every container of \
             a pod a restore, and is ignored"
        );
        of_options = "";
    }
    let named = [request.checkpoint.as_str(), of_options]
        .into_iter()
        .find(|path| !path.is_empty());
    match named.map(PathBuf::from) {
        None => Ok(None),
        Some(image) => {
            let found = image.clone();
            if run_blocking(move || found.is_dir()).await {
                return Ok(Some(image));
            }
            let text = format!("the checkpoint {} is no directory", image.display());
            Err(Error::Invalid(text))
        }
    }
}

async fn create_container(task: &Arc<Task>, mounts: &[Mount], caller: Caller) -> Result<()> {
    task.bundle.mount(mounts, &task.context.reaper).await?;
    let to_be_restored = matches!(task.record().state, LifecycleState::Prepared { .. });
    if to_be_restored {
        return Ok(());
    }
    let bundle = task.bundle.clone();
    let through = run_blocking(move || bundle.through()).await;
    task.record().through = through;
    let (streams, pending_io) = task.prepare_io(&task.id, &task.stdio).await?;
    let watch = task.context.reaper.watch();
    let console = pending_io.console();
    let call = task
        .runtime
        .start_create(&task.id, &task.bundle, through, streams, console)?;
    let runtime = call.process().map_err(Error::cannot("watch the create"))?;
    let making = async {
        call.wait().await?;
        attach_init(task, pending_io, &watch).await
    };
    tokio::select! {
        biased;
        made = making => made,
        reason = given_up(caller) => {
            // Fails only if it has ended.
            let _ = runtime.signal(Signal::KILL);
            task.remove_by_force().await;
            let message = format!("the create of {} was ended: {reason}", task.id);
            Err(Error::FailedPrecondition(message))
        }
    }
}

/// Waits until a create has become useless.
async fn given_up(mut caller: Caller) -> &'static str {
    tokio::select! {
        _ = caller.changed() => "its caller has gone",
        () = sleep(LONG) => "the low-level runtime, or a stream of the container, hangs",
    }
}

/// Connects the streams of the init process that a runtime has made or restored, and waits for its
/// exit. If the streams cannot be connected, the container is of no use and is removed.
pub(crate) async fn attach_init(
    task: &Arc<Task>,
    pending_io: PendingIo,
    watch: &ExitWatch,
) -> Result<()> {
    let attached = async {
        let pid = Bundle::read_pid(&task.bundle.init_pid_file())?;
        let io = pending_io.connect().await?;
        let exit = watch.exit_of(pid, format!("the init process of {}", task.id));
        task.track_init(pid, io, exit).await;
        Ok(())
    };
    let attached = attached.await;
    if attached.is_err() {
        task.remove_by_force().await;
    }
    attached
}
