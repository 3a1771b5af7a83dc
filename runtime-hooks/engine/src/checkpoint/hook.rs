//! Tells the program of a container of its checkpoint, before anything is locked.

use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::ProcessStates;

use crate::checkpoint::allowed;
use crate::checkpoint::captured::{Captured, ObservedContainer, as_reported};
use crate::checkpoint::plan::judge::{Looked, refuse_blockers};
use crate::checkpoint::plan::{Plan, query};
use crate::container::ContainerError;
use crate::error::{Failure, Refusal};
use crate::low_level::hook::{Run, Unsuccessful, pending};
use crate::operation::timeline::Timeline;

/// Runs the hook `before-checkpoint`. From before it on the container is owed the other one, once
/// its processes have their GPU again. A program of which an earlier operation has left processes
/// without theirs has been told already.
///
/// # Errors
/// [`Failure`]: the checkpoint is rolled back.
pub(super) fn tell_program(
    plan: &Plan<'_>,
    captured: &mut Captured,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let place = &plan.context.place();
    let has_been_told = captured.intent.keeps_some_off_gpu();
    if let Some(hook) = &plan.hooks.after_restore
        && !has_been_told
    {
        pending::record(&plan.operation, place, hook)?;
    }
    let Some(hook) = &plan.hooks.before_checkpoint else {
        return Ok(());
    };
    let run = Run {
        place,
        operation: &plan.operation,
        container: &plan.container,
        hook,
    };
    if !has_been_told {
        let said = timeline.time(hook.when.phase(), || run.run(&plan.context.cancel))?;
        said.iter().for_each(|said| timeline.note(said));
    }
    let members = look_again(plan, captured, timeline)?;
    if members.is_empty() {
        // The image would claim GPU state, and have none.
        return Err(run.unsuccessful(Unsuccessful::NoCudaLeft, "").into());
    }
    Ok(())
}

/// The program may have given GPU memory back, ended processes or started others: room is made for
/// what there is now. It may also have removed what was in the way, which is refused only now.
fn look_again(
    plan: &Plan<'_>,
    captured: &mut Captured,
    timeline: &mut Timeline<'_>,
) -> Result<ProcessStates, Refusal> {
    let (context, container) = (plan.context, &plan.container);
    let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
    let members = query(&plan.driver, container, &snapshot)?;
    let inventory = Inventory::read(&context.settings)?;
    let looked = Looked::with_cuda(container, &snapshot, &members, &inventory, &plan.copying);
    for finding in refuse_blockers(context, plan.options, &looked)? {
        timeline.note(allowed(&finding));
    }
    let observed = ObservedContainer {
        members: &as_reported(&members),
        freezer: plan.found,
        earlier: Some(&captured.intent),
    };
    *captured = Captured::describe(context, container, &snapshot, &inventory, observed)?;
    plan.operation.record(&captured.intent)?;
    Ok(members)
}
