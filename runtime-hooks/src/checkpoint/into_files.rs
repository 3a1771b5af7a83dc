//! GPU contents go into files of ours, and are found where they are.

use stasis_linux::ProcessRef;
use stasis_memory_store::GpuContents;

use crate::bulk_memory::dump::MemoryDump;
use crate::bulk_memory::ram_tier::GpuContentsIn;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::destination::Destination;
use crate::checkpoint::gpu_contents::MemoryBefore;
use crate::checkpoint::plan::Plan;
use crate::checkpoint::write_image::prepare;
use crate::container::memory_limit::MemoryCgroup;
use crate::container::{ContainerError, host_memory};
use crate::error::Failure;
use crate::gpu_path;
use crate::gpu_path::driver::BESIDE;
use crate::gpu_path::hole::{Holder, InFile, in_files};
use crate::operation::timeline::Timeline;

/// Where GPU contents go, and what stores them.
pub(super) struct Way<'p> {
    pub(super) destination: Destination,
    pub(super) memory: MemoryDump<'p>,
}

/// Prepares the store and makes files for GPU contents, while the processes run, and checks that
/// the container has room for what goes into its memory.
///
/// # Errors
/// [`Failure::HostMemory`], [`Failure::Operation`]; those of [`prepare`].
pub(super) fn make_files<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    timeline: &mut Timeline<'_>,
) -> Result<Way<'p>, Failure> {
    let limits = limits(plan)?;
    let destination = destination(plan, captured, &limits);
    let copied_from = destination.minimum(&plan.context.settings);
    plan.copying.try_driver(&held(captured, copied_from));
    let Destination::Files { minimum } = destination else {
        return into_memory(plan, captured, timeline);
    };
    let held = held(captured, minimum);
    let beside = BESIDE.saturating_mul(held.len() as u64);
    let bytes = captured.in_files_bytes(minimum);
    let bytes_of_files = bytes.saturating_add(beside);
    // What the operator has suspended is in files that are no packs, and does not go on.
    let in_files = match plan.goes_on_at_once() && captured.in_file_bytes == 0 {
        true => GpuContentsIn::FilesUntilTheyGoOn(bytes_of_files),
        false => GpuContentsIn::Files(bytes_of_files),
    };
    let mut way = Way {
        destination,
        memory: prepare(plan, in_files, timeline)?,
    };
    let made = way.memory.new_files().and_then(|files| {
        plan.copying
            .make(&held, &files, |process| captured.near(process));
        let has_file = |(process, _): &(ProcessRef, u64)| plan.copying.has_file(process);
        if bytes == 0 || !held.iter().all(has_file) {
            give_up(plan, captured, &mut way, timeline)?;
        }
        let bytes = way.destination.bytes_in_container(captured);
        host_memory::admit_limits(&limits, bytes)?;
        Ok(())
    });
    match made {
        Ok(()) => Ok(way),
        Err(cause) => {
            way.memory.undo(&plan.container);
            Err(cause)
        }
    }
}

/// Where they go, if all goes well.
fn destination(plan: &Plan<'_>, captured: &Captured, limits: &MemoryCgroup) -> Destination {
    let wanted = Destination::wanted(&plan.context.settings, &plan.plugins.ours);
    let bytes = wanted.bytes_in_container(captured);
    match host_memory::admit_limits(limits, bytes) {
        Ok(()) => wanted,
        Err(_) => wanted.in_files_only(),
    }
}

/// The memory limits of all processes.
fn limits(plan: &Plan<'_>) -> Result<MemoryCgroup, ContainerError> {
    let members = plan.container.snapshot();
    let members = members.map_err(ContainerError::Processes)?;
    plan.container.memory_of(members.candidates())
}

/// Has the driver's checkpoint of the locked processes put GPU contents into their files: either
/// all of them, or none.
///
/// # Errors
/// Those of [`prepare`].
pub(super) fn lead_into_files<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    way: &mut Way<'p>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let Destination::Files { minimum } = way.destination else {
        return Ok(());
    };
    match plan.copying.arm(&held(captured, minimum))[..] {
        [] => Ok(()),
        _ => give_up(plan, captured, way, timeline),
    }
}

/// They go into memory after all.
fn give_up<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    way: &mut Way<'p>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    plan.copying.disarm();
    way.memory.undo(&plan.container);
    *way = into_memory(plan, captured, timeline)?;
    Ok(())
}

fn into_memory<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    timeline: &mut Timeline<'_>,
) -> Result<Way<'p>, Failure> {
    let in_memory = GpuContentsIn::Memory(captured.to_host_bytes);
    Ok(Way {
        destination: Destination::Memory,
        memory: prepare(plan, in_memory, timeline)?,
    })
}

/// The processes that hold at least `minimum` bytes on GPUs, and how much.
fn held(captured: &Captured, minimum: u64) -> Vec<(ProcessRef, u64)> {
    let large = captured.on_gpu.iter();
    let large = large.filter(|on_gpu| on_gpu.bytes >= minimum);
    let held = large.filter_map(|on_gpu| Some((on_gpu.id.open().ok()??, on_gpu.bytes)));
    held.collect()
}

/// Starts who stores what the driver is to put into files.
///
/// # Errors
/// Those of [`MemoryDump::begin_to_store`].
pub(super) fn begin_to_store(captured: &Captured, way: &mut Way<'_>) -> Result<(), Failure> {
    match way.destination {
        Destination::Files { minimum } => {
            let expected = captured.in_files_bytes(minimum);
            way.memory.begin_to_store(expected)
        }
        Destination::Memory => Ok(()),
    }
}

/// Has the contents of a checkpointed process stored, while the driver is at work on others.
pub(super) fn store_beside_others(
    plan: &Plan<'_>,
    captured: &Captured,
    storing: Option<&Holder>,
    process: &ProcessRef,
) {
    if let (Some(storing), Some(pid)) = (storing, pid_in_image(plan, captured, process)) {
        storing.is_checkpointed(process, pid);
    }
}

/// The pid of a process in the container, if CRIU is to dump it.
fn pid_in_image(plan: &Plan<'_>, captured: &Captured, process: &ProcessRef) -> Option<i32> {
    let pid = plan.container.pid_inside(process)?;
    let mut dumped = captured.manifest.processes.iter();
    dumped.any(|process| process.pid == pid).then_some(pid)
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
    if destination != Destination::Memory {
        let dumped = |member: &ProcessRef| {
            let pid = pid_in_image(plan, captured, member)?;
            Some((pid, member.clone()))
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
