//! The pre-flight of a container below a frozen cgroup, for which a checkpoint thaws that.

use stasis_config::FrozenAbove;
use stasis_linux::cgroup::FreezerState;

use super::{CheckError, Report, check};
use crate::container::Container;
use crate::context::Context;
use crate::error::Refusal;
use crate::operation::refuse_under_way;
use crate::operation::undo::{Begun, Undo};
use crate::recovery;

/// Runs the pre-flight of a checkpoint; what is frozen above the container is thawed for it, if the
/// settings say that a checkpoint does so. It has the container's lock then, and a keeper.
///
/// # Errors
/// As [`check`].
pub fn check_thawed(context: &Context, container: &Container) -> Result<Report, CheckError> {
    let cgroup = container.cgroup();
    let is_paused = cgroup.freezer_state().map_err(Refusal::from)? == FreezerState::Frozen;
    let may_thaw = context.settings.preflight.frozen_above == FrozenAbove::Thaw;
    if is_paused || !may_thaw || cgroup.frozen_above().map_err(Refusal::from)?.is_none() {
        return check(context, container);
    }
    refuse_under_way(
        &context.settings.paths.state_dir,
        &context.root,
        container.id(),
    )?;
    let operation = recovery::begin(context, container.id())?;
    let undo = Undo::new(context, container.id(), Begun::Suspend);
    recovery::keep_and_thaw(context, container, &operation, undo)?;
    check(context, container)
}
