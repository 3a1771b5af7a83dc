//! The image of a checkpoint: its manifest, and the dump.

use stasis_linux::ProcessRef;

use crate::bulk_memory::dump::MemoryDump;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::dump::{Dump, log_of};
use crate::checkpoint::explain_failed_dump::explain;
use crate::checkpoint::late_exec;
use crate::checkpoint::plan::Plan;
use crate::checkpoint::seal::describe;
use crate::container::ContainerError;
use crate::error::Failure;
use crate::operation::timeline::Timeline;
use crate::request::LowLevelArgs;

/// Writes the manifest, and has the low-level runtime dump the process tree. `members` are the
/// processes whose GPU state is in their memory now. The image is not sealed yet.
pub(crate) fn write_image(
    plan: &Plan<'_>,
    captured: &mut Captured,
    members: &[ProcessRef],
    memory: &mut MemoryDump<'_>,
    low_level_args: LowLevelArgs<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let snapshot = plan.container.snapshot();
    let snapshot = snapshot.map_err(ContainerError::Processes)?;
    captured.verify(&plan.container, members, &snapshot)?;
    for note in late_exec::refuse_or_note(plan.context, plan.options, &snapshot)? {
        timeline.note(note);
    }
    let manifest = &mut captured.manifest;
    manifest.memory = memory.record();
    manifest.phases = timeline.phases().to_vec();
    describe(manifest, plan.image.path())?;
    let mut dump = Dump {
        context: plan.context,
        operation: &plan.operation,
        options: plan.options,
        container: &plan.container,
        image: &plan.image,
        memory,
        log: log_of(plan.context, &plan.container, plan.options),
        recorded: &captured.manifest.processes,
        exec: &captured.exec,
    };
    let dumped = dump.run(low_level_args, timeline);
    dumped.map_err(|not| explain(&dump, not, members, Some(&plan.driver), timeline))?;
    dump.verify()?;
    memory.succeeded(timeline);
    Ok(())
}
