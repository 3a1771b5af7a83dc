//! Puts GPU contents into files of ours, and finds them there.

use stasis_gpu::gpu_path;
use stasis_gpu::gpu_path::detached::{Holder, InFile, in_files};
use stasis_linux::ProcessRef;

use crate::bulk_memory::dump::MemoryDump;
use crate::bulk_memory::dump::requests::Requests;
use crate::bulk_memory::staging;
use crate::checkpoint::captured::Captured;
use crate::checkpoint::plan::Plan;
use crate::checkpoint::route::{Facts, GpuContentsRoute};
use crate::container::memory_limit::MemoryCgroup;
use crate::container::{ContainerError, host_memory};
use crate::error::Failure;
use crate::operation::timeline::Timeline;

/// Decides the route, prepares the store and makes files for GPU contents, while the processes run,
/// and checks that the container has room for what goes into its memory.
///
/// # Errors
/// [`Failure::HostMemory`], [`Failure::Operation`]; those of [`MemoryDump::prepare`].
pub(super) fn make_files(
    plan: &Plan<'_>,
    captured: &Captured,
    memory: &mut MemoryDump<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<GpuContentsRoute, Failure> {
    let settings = &plan.context.settings;
    let limits = limits(plan)?;
    let mut route = GpuContentsRoute::decide(&Facts {
        settings,
        plugin: plan.plugins.ours.as_ref().copied(),
        limits: &limits,
        captured,
        resumes: plan.resumes(),
        // Making the files shows which process gets none.
        no_file: &|_| None,
    });
    match route.in_files() {
        None => note_by_criu(&route, captured, timeline),
        Some(minimum) => {
            let held = captured.held(minimum);
            route = into_new_files(plan, captured, &held, route, memory, timeline)?;
        }
    }
    host_memory::admit_limits(&limits, route.bytes_in_container(captured))?;
    Ok(route)
}

/// Makes files for the contents of these processes. Returns the route that the contents take.
fn into_new_files(
    plan: &Plan<'_>,
    captured: &Captured,
    held: &[(ProcessRef, u64)],
    route: GpuContentsRoute,
    memory: &mut MemoryDump<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<GpuContentsRoute, Failure> {
    let beside = route.bytes_beside_files(captured);
    let bytes = route.bytes_in_files(captured).saturating_add(beside);
    let (route, requests) = requests(plan, route, bytes, timeline)?;
    let files = memory.prepare(requests)?;
    plan.copying
        .make(held, &files, |process| captured.near(process));
    let mut processes = held.iter().map(|(process, _)| process);
    Ok(
        match processes.find(|process| !plan.copying.has_file(process)) {
            Some(alone) => give_up(plan, captured, alone, memory, timeline),
            None => route,
        },
    )
}

/// Returns the requests for contents of so many bytes, and their route. Without room to stage them,
/// stores them in place instead of waiting for room.
fn requests(
    plan: &Plan<'_>,
    route: GpuContentsRoute,
    bytes: u64,
    timeline: &mut Timeline<'_>,
) -> Result<(GpuContentsRoute, Requests), Failure> {
    let (context, operation) = (plan.context, &plan.operation);
    let GpuContentsRoute::Staged { minimum } = route else {
        let in_place = Requests::in_place(context, operation, bytes, timeline)?;
        return Ok((route, in_place));
    };
    if let Err(why) = staging::make_room(context, operation.reservation(), bytes) {
        timeline.note(format!(
            "the processes go on only when their GPU contents are stored: {why}"
        ));
        let route = GpuContentsRoute::ToImage { minimum };
        return requests(plan, route, bytes, timeline);
    }
    Ok((route, Requests::staged(context, operation)?))
}

/// The memory limits of all processes.
fn limits(plan: &Plan<'_>) -> Result<MemoryCgroup, ContainerError> {
    let members = plan.container.snapshot()?;
    plan.container.memory_of(members.candidates())
}

/// Has the driver's checkpoint of the locked processes put GPU contents into their files: either
/// all of them, or none. Returns the route that the contents take.
pub(super) fn lead_into_files(
    plan: &Plan<'_>,
    captured: &Captured,
    route: GpuContentsRoute,
    memory: &mut MemoryDump<'_>,
    timeline: &mut Timeline<'_>,
) -> GpuContentsRoute {
    let Some(minimum) = route.in_files() else {
        return route;
    };
    if let [alone, ..] = &plan.copying.arm(&captured.held(minimum))[..] {
        return give_up(plan, captured, alone, memory, timeline);
    }
    note_by_criu(&route, captured, timeline);
    route
}

/// Gives the files up, since one process gets none: all contents go into memory.
fn give_up(
    plan: &Plan<'_>,
    captured: &Captured,
    alone: &ProcessRef,
    memory: &mut MemoryDump<'_>,
    timeline: &mut Timeline<'_>,
) -> GpuContentsRoute {
    let why = plan.copying.why_alone(alone);
    let why = why.unwrap_or_else(|| "it has begun to use its GPU since".to_owned());
    plan.copying.disarm();
    memory.undo(&plan.container);
    let route = GpuContentsRoute::without_file(alone, &why);
    note_by_criu(&route, captured, timeline);
    route
}

fn note_by_criu(route: &GpuContentsRoute, captured: &Captured, timeline: &mut Timeline<'_>) {
    if let Some(by_criu) = route.by_criu(captured) {
        timeline.note(by_criu.to_string());
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
/// there. Without any, all contents are memory of their processes.
pub(super) fn find(
    plan: &Plan<'_>,
    captured: &Captured,
    members: &[ProcessRef],
    route: &GpuContentsRoute,
) -> Result<Vec<InFile>, Failure> {
    if route.in_files().is_some() {
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
