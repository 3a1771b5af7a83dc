//! The image of a checkpoint: its manifest, and the dump.

use stasis_gpu::cuda::gpu_use::CudaProcess;
use stasis_linux::ProcessRef;

use crate::bulk_memory::dump::MemoryDump;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::dump::{Dump, log_of};
use crate::checkpoint::late_exec;
use crate::checkpoint::plan::Plan;
use crate::checkpoint::seal::describe;
use crate::container::ContainerError;
use crate::error::{Failure, chain};
use crate::image::pstree::PstreeError;
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
        options: plan.options,
        container: &plan.container,
        image: &plan.image,
        memory,
        log: log_of(plan.context, &plan.container, plan.options),
        recorded: &captured.manifest.processes,
        exec: &captured.exec,
    };
    let dumped = dump.run(low_level_args, timeline);
    dumped.map_err(|not_dumped| explain(dump.failure(not_dumped), members, captured, timeline))?;
    dump.verify()?;
    memory.succeeded(timeline);
    Ok(())
}

/// Returns the process that ended, if CRIU failed for it, and notes what CRIU reports: a killed
/// process that the freezer of cgroup v1 holds is "Zombies with threads are not supported". A
/// failure that names its process stays as it is.
fn explain(
    failure: Failure,
    members: &[ProcessRef],
    captured: &Captured,
    timeline: &mut Timeline<'_>,
) -> Failure {
    if !matches!(failure, Failure::LowLevel(_)) {
        return failure;
    }
    let Some(ended) = ended_meanwhile(members, captured) else {
        return failure;
    };
    timeline.note(format!("the dump failed: {}", chain(&failure)));
    Failure::Pstree(PstreeError::without(ended))
}

/// Finds a process of the image that ended while CRIU dumped it.
fn ended_meanwhile<'c>(members: &[ProcessRef], captured: &'c Captured) -> Option<&'c CudaProcess> {
    let ending = members
        .iter()
        .filter(|process| matches!(process.is_dying(), Ok(true)));
    let recorded = ending.filter_map(|process| captured.intent.member(process));
    let dumped = &captured.manifest.processes;
    recorded
        .map(|member| &member.process)
        .find(|process| dumped.contains(process))
}
