//! What the processes of a container share is known once they are locked.

use stasis_linux::ProcessRef;

use crate::checkpoint::allowed;
use crate::checkpoint::plan::Plan;
use crate::container::ContainerError;
use crate::cuda::nvml::Inventory;
use crate::error::{Failure, Refusal};
use crate::preflight::blocker::Blockers;
use crate::preflight::sharing::at_the_lock;

/// Refuses what the driver would not restore.
///
/// # Errors
/// [`Failure::Refused`]: the checkpoint is rolled back, and all go on as before.
pub(super) fn refuse_shared(plan: &Plan<'_>, locked: &[ProcessRef]) -> Result<(), Failure> {
    Ok(look(plan, locked)?)
}

fn look(plan: &Plan<'_>, locked: &[ProcessRef]) -> Result<(), Refusal> {
    let (settings, container) = (&plan.context.settings, &plan.container);
    let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
    let inventory = Inventory::read(settings)?;
    let seen = at_the_lock(&plan.copying, locked, container, &inventory, &snapshot);
    let seen = seen.map_err(ContainerError::Processes)?;
    let found = Blockers::check(seen.found, settings)?;
    let notes = found.iter().map(allowed).chain(seen.notes);
    plan.copying.add_notes(notes.collect());
    Ok(())
}
