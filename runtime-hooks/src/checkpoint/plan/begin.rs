//! The container's lock and the keeper, before anything is looked at.

use std::path::Path;

use stasis_linux::cgroup::FreezerState;

use super::is_plain;
use crate::container::shared_memory::{carried, is_empty};
use crate::container::{Container, criu_configuration};
use crate::context::Context;
use crate::error::Refusal;
use crate::image::directory;
use crate::image::work_directory;
use crate::operation::Operation;
use crate::operation::undo::Undo;
use crate::preflight::cuda_processes::refuse_below_frozen;
use crate::recovery;
use crate::recovery::group::member::{Member, begun};
use crate::request::CheckpointRequest;

/// Whether the image has files to carry that CRIU does not dump.
fn carries(container: &Container, image: &Path) -> bool {
    carried(container, image).is_some_and(|directory| !is_empty(&directory).is_ok_and(|is| is))
}

/// Takes the container's lock and starts the keeper; `None` if this checkpoint is the low-level
/// runtime's alone.
pub(super) fn begin(
    context: &Context,
    options: &CheckpointRequest,
    member: Option<&Member>,
) -> Result<Option<(Container, Operation, FreezerState)>, Refusal> {
    let Some(container) = context.container(&options.id)? else {
        return Ok(None);
    };
    let (settings, flavor) = (&context.settings, context.low_level.flavor);
    criu_configuration::refuse_running(settings, flavor, &context.root, &container)?;
    // Before anything of ours is needed, or written: its image is the low-level runtime's
    // alone. But one that takes the place of an image of ours must not keep its GPU state.
    let is_alone = member.is_none()
        && !directory::is_ours(&options.image_path)
        && !carries(&container, &options.image_path);
    if is_alone && is_plain(&container)? {
        return Ok(None);
    }
    work_directory::check_for_dump(options.work(), &options.image_path)?;
    let operation = recovery::begin(context, &options.id)?;
    let found = container.cgroup().freezer_state()?;
    let undo = Undo::new(context, &options.id, begun(found, None, member));
    refuse_below_frozen(&container)?;
    operation.keep(undo)?;
    Ok(Some((container, operation, found)))
}
