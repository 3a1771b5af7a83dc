//! A cgroup above the container's that is frozen: who checkpoints a whole pod may freeze its cgroup
//! first, and the driver answers nothing for processes that are frozen. If the settings say so, it
//! is thawed for an operation, and with its record frozen again.

use stasis_config::FrozenAbove as Setting;
use stasis_linux::cgroup::{FreezerError, FreezerState, FrozenAbove};

use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::cuda::failure::{Cause, ProcessFailure, Step};
use crate::cuda::stopped::Stop;
use crate::error::Refusal;
use crate::operation::Operation;
use crate::operation::undo::Undo;

/// Has `operation` keep what it has to undo, and lets the container run that was found so, whatever
/// is frozen above it.
///
/// # Errors
/// [`Refusal`]; the settings do not allow it, or what was thawed until then is frozen again with
/// the end of the operation.
pub(crate) fn keep_and_thaw(
    context: &Context,
    container: &Container,
    operation: &Operation,
    mut undo: Undo,
) -> Result<(), Refusal> {
    let found = container.cgroup().freezer_state()?;
    undo.above = find(context, container)?;
    let above = undo.above.clone();
    operation.keep(undo)?;
    match above {
        Some(above) => Ok(thaw(&above, container, found)?),
        None => Ok(()),
    }
}

/// What is to be thawed; nothing for a container that may not use CUDA, which can be dumped as it
/// is.
///
/// # Errors
/// The settings do not allow it.
fn find(context: &Context, container: &Container) -> Result<Option<FrozenAbove>, Refusal> {
    let Some(above) = container.cgroup().frozen_above()? else {
        return Ok(None);
    };
    let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
    let Some(process) = snapshot.candidates().first() else {
        return Ok(None);
    };
    match context.settings.preflight.frozen_above {
        Setting::Thaw => Ok(Some(above)),
        Setting::Refuse => {
            let cause = Cause::Stopped(Stop::FrozenAbove);
            Err(ProcessFailure::of(Step::Query, process, cause).into())
        }
    }
}

/// Lets the container alone run, if it is not paused itself.
///
/// # Errors
/// [`FreezerError`].
fn thaw(
    above: &FrozenAbove,
    container: &Container,
    found: FreezerState,
) -> Result<(), FreezerError> {
    above.thaw()?;
    match found {
        FreezerState::Thawed => container.cgroup().thaw(),
        FreezerState::Frozen => Ok(()),
    }
}
