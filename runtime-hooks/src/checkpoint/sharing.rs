//! What the processes of a container share is known once they are locked.

use stasis_linux::{ProcessRef, Snapshot};

use crate::checkpoint::allowed;
use crate::checkpoint::plan::Plan;
use crate::container::ContainerError;
use crate::cuda::nvml::Inventory;
use crate::error::Refusal;
use crate::preflight::blocker::Blockers;
use crate::preflight::sharing::at_the_lock;

/// Refuses what the driver would not restore of locked processes, which were looked at since.
///
/// # Errors
/// [`Refusal`]: the checkpoint is rolled back, and all go on as before.
pub(super) fn refuse_shared(
    plan: &Plan<'_>,
    locked: &[ProcessRef],
    snapshot: &Snapshot,
    inventory: &Inventory,
) -> Result<(), Refusal> {
    let seen = at_the_lock(&plan.copying, locked, &plan.container, inventory, snapshot);
    let seen = seen.map_err(ContainerError::Processes)?;
    let found = Blockers::check(seen.found, &plan.context.settings)?;
    let notes = found.iter().map(allowed).chain(seen.notes);
    plan.copying.add_notes(notes.collect());
    Ok(())
}
