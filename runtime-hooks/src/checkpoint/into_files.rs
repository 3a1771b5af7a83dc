//! GPU contents go into files of ours, and are found where they are.

use stasis_linux::ProcessRef;
use stasis_memory_store::GpuContents;

use crate::checkpoint::captured::Captured;
use crate::checkpoint::destination::Destination;
use crate::checkpoint::gpu_contents::MemoryBefore;
use crate::checkpoint::plan::Plan;
use crate::container::{ContainerError, host_memory};
use crate::error::Failure;
use crate::gpu_path;
use crate::gpu_path::hole::{InFile, in_files};

/// What a process has to hold for a file, in bytes.
pub(super) fn minimum(plan: &Plan<'_>) -> u64 {
    plan.context.settings.gpu_checkpoint.minimum_mib << 20
}

/// Makes files for GPU contents, while the processes run, and checks that the container has room
/// for what goes into its memory.
///
/// # Errors
/// [`Failure::HostMemory`].
pub(super) fn make_files(plan: &Plan<'_>, captured: &Captured) -> Result<Destination, Failure> {
    let wanted = Destination::wanted(plan.context, &plan.plugins);
    if wanted == Destination::Memory {
        return Ok(Destination::Memory);
    }
    let held = held(plan, captured);
    plan.copying.make(&held);
    let has_file = |(process, _): &(ProcessRef, u64)| plan.copying.has_file(process);
    let is_there = held.iter().all(has_file) && captured.in_files_bytes(minimum(plan)) > 0;
    let destination = match is_there {
        true => Destination::Files,
        false => Destination::Memory,
    };
    if destination == Destination::Memory {
        plan.copying.disarm();
    }
    let members = plan.container.snapshot();
    let members = members.map_err(ContainerError::Processes)?;
    let cgroup = plan.container.memory_of(members.candidates())?;
    let bytes = destination.bytes_in_container(captured, minimum(plan));
    host_memory::admit_limits(&plan.context.settings.memory, &cgroup, bytes)?;
    Ok(destination)
}

/// Has the driver's checkpoint of the locked processes put GPU contents into their files: either
/// all of them, or none.
pub(super) fn lead_into_files(
    plan: &Plan<'_>,
    captured: &Captured,
    destination: Destination,
) -> Destination {
    if destination == Destination::Memory {
        return Destination::Memory;
    }
    let alone = plan.copying.arm(&held(plan, captured));
    if alone.is_empty() {
        return Destination::Files;
    }
    plan.copying.disarm();
    Destination::Memory
}

/// The processes that hold enough on GPUs for a file, and how much.
fn held(plan: &Plan<'_>, captured: &Captured) -> Vec<(ProcessRef, u64)> {
    let large = captured.on_gpu.iter();
    let large = large.filter(|(_, bytes)| *bytes >= minimum(plan));
    let held = large.filter_map(|(process, bytes)| Some((process.open().ok()??, *bytes)));
    held.collect()
}

/// Finds the GPU contents of checkpointed processes: in files, or in their memory.
///
/// # Errors
/// [`Failure::ContentsInFile`], [`Failure::GpuContents`].
pub(super) fn find(
    plan: &Plan<'_>,
    captured: &mut Captured,
    members: &[ProcessRef],
    before: MemoryBefore,
    destination: Destination,
) -> Result<Vec<InFile>, Failure> {
    let container = &plan.container;
    if destination == Destination::Files {
        let dumped = |member: &ProcessRef| {
            let pid = container.pid_inside(member)?;
            let mut dumped = captured.manifest.processes.iter();
            let is_dumped = dumped.any(|process| process.pid == pid);
            is_dumped.then(|| (pid, member.clone()))
        };
        let dumped: Vec<_> = members.iter().filter_map(dumped).collect();
        let found = in_files(&dumped).map_err(Failure::GpuContents)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    // CRIU cannot dump the mapping of a file that has no name.
    gpu_path::make_private(members).map_err(Failure::ContentsInFile)?;
    let of = |(process, ranges): (ProcessRef, _)| {
        let pid = container.pid_inside(&process)?;
        Some(GpuContents { pid, ranges })
    };
    captured.gpu_contents = before.appeared().into_iter().filter_map(of).collect();
    Ok(Vec::new())
}
