//! Takes the container's lock and starts the keeper, before any check.

use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_linux::cgroup::FreezerState;

use super::is_plain;
use super::judge::refuse_without_gpu_state;
use crate::companions::Companions;
use crate::container::mounted::are_told_of;
use crate::container::{Container, ContainerError, criu_configuration};
use crate::context::Context;
use crate::error::Refusal;
use crate::image::directory;
use crate::image::work_directory;
use crate::operation::undo::{Begun, Undo};
use crate::operation::{Operation, OperationError};
use crate::preflight::cuda_processes::refuse_below_frozen;
use crate::recovery;
use crate::request::CheckpointRequest;

const POLL: Duration = Duration::from_millis(20);

/// Takes the container's lock and starts the keeper; `None` if this checkpoint is the low-level
/// runtime's alone.
pub(super) fn begin(
    context: &Context,
    options: &CheckpointRequest,
    companions: &dyn Companions,
) -> Result<Option<(Container, Operation, FreezerState)>, Refusal> {
    let Some(container) = context.container(&options.id)? else {
        return Ok(None);
    };
    let (settings, flavor) = (&context.settings, context.low_level.flavor);
    criu_configuration::refuse_running(settings, flavor, &context.root, &container)?;
    // Before anything of ours is needed, or written: its image is the low-level runtime's alone.
    // But an image in the place of one of ours must not keep its GPU state.
    let is_alone = companions.outcome().is_none()
        && !directory::is_ours(&options.image_path)
        && !are_told_of(settings, &container, &options.image_path);
    if is_alone && is_plain(&container)? {
        let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
        refuse_without_gpu_state(context, options, &container, &snapshot)?;
        return Ok(None);
    }
    work_directory::check_for_dump(options.work(), &options.image_path)?;
    let operation = begin_behind_others(context, options, &container)?;
    let found = container.cgroup().freezer_state()?;
    let begun = Begun::Checkpoint {
        found,
        image: None,
        shared: companions.outcome().cloned(),
    };
    let undo = Undo::new(context, &options.id, begun).of(&container);
    refuse_below_frozen(&container)?;
    operation.keep(undo)?;
    Ok(Some((container, operation, found)))
}

/// Takes the lock when its holder is done, if the caller waits for that. If the container has ended
/// meanwhile, no image of it can be made.
fn begin_behind_others(
    context: &Context,
    options: &CheckpointRequest,
    container: &Container,
) -> Result<Operation, OperationError> {
    let deadline = Instant::now() + options.wait;
    let waits = || {
        let is_there = !container.init().is_gone();
        is_there && Instant::now() < deadline && !context.cancel.requested()
    };
    loop {
        match recovery::begin(context, &options.id) {
            Err(OperationError::Busy { .. } | OperationError::Orphans) if waits() => sleep(POLL),
            begun => return begun,
        }
    }
}
