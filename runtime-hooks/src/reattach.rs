//! Giving restored processes their GPU state.

use crate::admission::GpuPlace;
use crate::container::{Container, ContainerError};
use crate::engine::Engine;
use crate::error::Failure;
use crate::gauge::Gauge;
use crate::job::CudaJob;
use crate::manifest::Manifest;
use crate::process::ProcessRef;
use crate::timeline::Timeline;

/// Brings the GPU state of every process of the manifest back and lets it go on. When this
/// returns, every one of them is RUNNING.
///
/// # Errors
/// [`Failure`]; some of the processes may be RUNNING then.
pub(crate) fn reattach(
    engine: &Engine,
    id: &str,
    gpus: &GpuPlace,
    manifest: &Manifest,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let container = Container::load(engine.low_level.flavor, &engine.root, id)?;
    let processes = find(&container, manifest)?;
    make_nodes(&container, gpus, &processes, timeline)?;
    let job = CudaJob::of_restored(&gpus.driver, processes)?;
    let gauge = Gauge::gpu_restore(manifest.gpu_bytes(), job.members());
    let job = timeline.time_moving("gpu restore", gauge, || job.restore(&gpus.map))?;
    timeline.time("unlock", || job.unlock())?;
    Ok(())
}

/// Makes device nodes in every `/dev` that one of the processes, or the container's first, sees.
fn make_nodes(
    container: &Container,
    gpus: &GpuPlace,
    processes: &[ProcessRef],
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    for process in std::iter::once(container.init()).chain(processes) {
        // In a `/dev` that was seen to already there is nothing left to do.
        let made = gpus.nodes.make(process);
        for note in made.map_err(Failure::DeviceNodes)? {
            timeline.note(note);
        }
    }
    Ok(())
}

/// The processes of the manifest, by the pids in the container that CRIU gave them again.
fn find(container: &Container, manifest: &Manifest) -> Result<Vec<ProcessRef>, Failure> {
    let mut processes = container.processes().map_err(ContainerError::Processes)?;
    let mut found = Vec::with_capacity(manifest.processes.len());
    for wanted in &manifest.processes {
        let position = processes
            .iter()
            .position(|process| container.pid_inside(process) == Some(wanted.pid))
            .ok_or_else(|| Failure::MissingProcess {
                pid: wanted.pid,
                name: wanted.name.clone(),
            })?;
        found.push(processes.swap_remove(position));
    }
    Ok(found)
}
