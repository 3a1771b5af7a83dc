//! GPU contents go into files of ours, and are found where they are.

use stasis_linux::ProcessRef;

use crate::bulk_memory::dump::MemoryDump;
use crate::bulk_memory::room::GpuContentsIn;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::destination::{Cause, Destination, no_file};
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
    let settings = &plan.context.settings;
    let limits = limits(plan)?;
    let wanted = Destination::wanted(settings, plan.plugins.ours.as_ref().copied());
    let destination = wanted.fitting(&limits, captured);
    let copied_from = destination.minimum(settings);
    plan.copying.try_driver(&captured.held(copied_from));
    let mut way = match destination {
        Destination::Memory(cause) => into_memory(plan, captured, cause, timeline)?,
        Destination::Files { minimum } if captured.in_files_bytes(minimum) == 0 => {
            into_memory(plan, captured, Cause::Little { minimum }, timeline)?
        }
        Destination::Files { minimum } => into_new_files(plan, captured, minimum, timeline)?,
    };
    let bytes = way.destination.bytes_in_container(captured);
    match host_memory::admit_limits(&limits, bytes) {
        Ok(()) => Ok(way),
        Err(cause) => {
            way.memory.undo(&plan.container);
            Err(cause.into())
        }
    }
}

/// Those of processes that hold at least `minimum` bytes.
fn into_new_files<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    minimum: u64,
    timeline: &mut Timeline<'_>,
) -> Result<Way<'p>, Failure> {
    let held = captured.held(minimum);
    let beside = BESIDE.saturating_mul(held.len() as u64);
    let bytes_of_files = captured.in_files_bytes(minimum).saturating_add(beside);
    // What the operator has suspended is in files that are no packs, and does not go on.
    let in_files = match plan.goes_on_at_once() && captured.in_file_bytes == 0 {
        true => GpuContentsIn::FilesUntilTheyGoOn(bytes_of_files),
        false => GpuContentsIn::Files(bytes_of_files),
    };
    let mut way = Way {
        destination: Destination::Files { minimum },
        memory: prepare(plan, Some(in_files), timeline)?,
    };
    let files = match way.memory.new_files() {
        Ok(files) => files,
        Err(cause) => {
            way.memory.undo(&plan.container);
            return Err(cause);
        }
    };
    plan.copying
        .make(&held, &files, |process| captured.near(process));
    let mut processes = held.iter().map(|(process, _)| process);
    if let Some(alone) = processes.find(|process| !plan.copying.has_file(process)) {
        give_up(plan, captured, alone, &mut way, timeline)?;
    }
    Ok(way)
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
    if let [alone, ..] = &plan.copying.arm(&captured.held(minimum))[..] {
        return give_up(plan, captured, alone, way, timeline);
    }
    if let Some(by_criu) = way.destination.by_criu(captured) {
        timeline.note(by_criu.to_string());
    }
    Ok(())
}

/// One of them gets no file: they go into memory after all.
fn give_up<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    alone: &ProcessRef,
    way: &mut Way<'p>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let why = plan.copying.why_alone(alone);
    let why = why.unwrap_or_else(|| "it has begun to use its GPU since".to_owned());
    plan.copying.disarm();
    way.memory.undo(&plan.container);
    *way = into_memory(plan, captured, no_file(alone, &why), timeline)?;
    Ok(())
}

fn into_memory<'p>(
    plan: &'p Plan<'_>,
    captured: &Captured,
    cause: Cause,
    timeline: &mut Timeline<'_>,
) -> Result<Way<'p>, Failure> {
    let destination = Destination::Memory(cause);
    if let Some(by_criu) = destination.by_criu(captured) {
        timeline.note(by_criu.to_string());
    }
    Ok(Way {
        destination,
        memory: prepare(plan, None, timeline)?,
    })
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
        Destination::Memory(_) => Ok(()),
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

/// Finds the GPU contents of checkpointed processes that are in files, and are to be stored from
/// there. Without any, all are memory of their processes.
///
/// # Errors
/// [`Failure::ContentsInFile`], [`Failure::GpuContents`].
pub(super) fn find(
    plan: &Plan<'_>,
    captured: &Captured,
    members: &[ProcessRef],
    destination: &Destination,
) -> Result<Vec<InFile>, Failure> {
    if let Destination::Files { .. } = destination {
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
    Ok(Vec::new())
}
