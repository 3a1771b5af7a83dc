//! Restores the GPU state of restored processes.

use std::collections::BTreeMap;
use std::io;

use stasis_gpu::cuda::gpu_use::gpu_bytes;
use stasis_gpu::cuda::job::{CudaJob, Locked};
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_gpu::cuda::process_set::query_states;
use stasis_gpu::cuda::{CudaState, Driver};
use stasis_gpu::gpu_path::detached::{Arriving, Loaded};
use stasis_gpu::gpu_path::imports::{self, Share};
use stasis_linux::ProcessRef;

use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::error::{Failure, Refusal};
use crate::image::manifest::Manifest;
use crate::operation::directory_of;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;
use crate::preflight::cuda_processes::{open_driver, without_driver};
use crate::restore::admission::GpuPlace;

/// Restores the GPU state of every process in the manifest and unlocks it. On success every process
/// is RUNNING.
///
/// # Errors
/// [`Failure`]; some of the processes may already be RUNNING.
pub(crate) fn restore_gpu_state(
    context: &Context,
    id: &str,
    gpus: &GpuPlace,
    manifest: &Manifest,
    loaded: Option<Loaded>,
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    let job = restore_locked(context, id, gpus, manifest, loaded, timeline)?;
    timeline.time("unlock", || job.unlock())?;
    Ok(())
}

/// Restores the GPU state of every process in the manifest. On success every process is LOCKED.
pub(crate) fn restore_locked<'g>(
    context: &Context,
    id: &str,
    gpus: &'g GpuPlace,
    manifest: &Manifest,
    loaded: Option<Loaded>,
    timeline: &mut Timeline<'_>,
) -> Result<CudaJob<'g, Locked>, Failure> {
    let container = Container::load(context.low_level.flavor, &context.root, id)?;
    let processes = find(&container, manifest)?;
    let arriving = match loaded {
        Some(loaded) => map(loaded, gpus, manifest, &processes, timeline)?,
        None => None,
    };
    make_nodes(&container, gpus, &processes, timeline)?;
    expect_shared(context, id, manifest, &processes).map_err(Failure::SharedMemory)?;
    let bytes = manifest
        .processes
        .iter()
        .map(|process| gpu_bytes([process]));
    let held: Vec<_> = processes.iter().cloned().zip(bytes).collect();
    gpus.driver.expect(&held);
    let job = CudaJob::of_restored(&gpus.driver, processes)?;
    let estimate = ProgressEstimate::gpu_restore(manifest.gpu_bytes(), job.members(), &gpus.driver);
    let job = timeline.time_moving("gpu restore", estimate, || job.restore(&gpus.map));
    timeline.set_copying(gpus.driver.copying());
    // The GPU state is valid only if all contents were: no process resumes before that is known.
    if let Some(arriving) = arriving
        && (job.is_ok() || arriving.arrivals().have_failed())
    {
        timeline.time("load", || arriving.finish())?;
    }
    Ok(job?)
}

/// Gives processes their contents, or the files into which these are still loaded.
fn map(
    loaded: Loaded,
    gpus: &GpuPlace,
    manifest: &Manifest,
    processes: &[ProcessRef],
    timeline: &mut Timeline<'_>,
) -> Result<Option<Arriving>, Failure> {
    let pids = manifest.processes.iter().map(|process| process.pid);
    let inside: Vec<_> = pids.zip(processes.iter().cloned()).collect();
    let mapped = timeline.time("fill", || loaded.map(&inside));
    let Some(arriving) = mapped.map_err(Failure::GpuContents)? else {
        return Ok(None);
    };
    timeline.time("load", || arriving.arrivals().until_soon());
    if arriving.arrivals().have_failed() {
        arriving.finish()?;
        return Ok(None);
    }
    gpus.driver.expect_arrivals(arriving.arrivals());
    Ok(Some(arriving))
}

/// Records the memory that processes share again, before any of them resumes.
fn expect_shared(
    context: &Context,
    id: &str,
    manifest: &Manifest,
    processes: &[ProcessRef],
) -> io::Result<()> {
    if manifest.shared.is_empty() {
        return Ok(());
    }
    let pids = manifest.processes.iter().map(|process| process.pid);
    let ids: BTreeMap<i32, ProcessId> = pids.zip(processes.iter().map(ProcessId::of)).collect();
    let id_of = |pid| ids.get(&pid).copied().ok_or(io::ErrorKind::InvalidData);
    let shares = manifest.shared.iter().map(|shared| {
        Ok(Share {
            importer: id_of(shared.importer)?,
            import: shared.import,
            owner: id_of(shared.owner)?,
            owned_at: shared.owned_at,
        })
    });
    let shares: Vec<Share> = shares.collect::<io::Result<_>>()?;
    let directory = directory_of(&context.settings.paths.state_dir, &context.root, id);
    imports::expect(&directory, &shares)
}

/// Makes device nodes in every `/dev` that one of the processes, or the container's init, sees.
fn make_nodes(
    container: &Container,
    gpus: &GpuPlace,
    processes: &[ProcessRef],
    timeline: &mut Timeline<'_>,
) -> Result<(), Failure> {
    for process in std::iter::once(container.init()).chain(processes) {
        // A `/dev` that was done before needs no change.
        let made = gpus.nodes.make(process);
        for note in made.map_err(Failure::DeviceNodes)? {
            timeline.note(note);
        }
    }
    Ok(())
}

/// Returns the manifest's processes, found among the restored ones by their pids in the container.
fn find(container: &Container, manifest: &Manifest) -> Result<Vec<ProcessRef>, Failure> {
    let snapshot = container.snapshot().map_err(ContainerError::Processes)?;
    let mut processes = snapshot.into_candidates();
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

/// Checks that every CUDA process of a restored container is RUNNING, whether a manifest lists it
/// or not. Queries only processes that may use CUDA.
///
/// # Errors
/// [`Failure::NotRunning`], or the error of the query.
pub(crate) fn verify(context: &Context, container: &Container) -> Result<(), Failure> {
    expect_all(context, container, &[CudaState::Running])
}

/// Checks the same before the processes of the manifest are unlocked.
pub(crate) fn verify_locked(context: &Context, container: &Container) -> Result<(), Failure> {
    expect_all(context, container, &[CudaState::Running, CudaState::Locked])
}

fn expect_all(
    context: &Context,
    container: &Container,
    right: &[CudaState],
) -> Result<(), Failure> {
    let candidates = match container.snapshot() {
        Ok(snapshot) => snapshot.into_candidates(),
        // The cgroup of a container that has ended may be gone.
        Err(_) if container.init().is_gone() => return Ok(()),
        Err(error) => return Err(ContainerError::Processes(error).into()),
    };
    if candidates.is_empty() {
        return Ok(());
    }
    let driver = match open_driver(context, container.id()) {
        Ok(driver) => driver,
        Err(error) => {
            return without_driver(error, &candidates).map_err(|error| Refusal::from(error).into());
        }
    };
    for (process, state) in query_states(&driver, candidates)? {
        if !right.contains(&state) && !process.is_gone() {
            return Err(Failure::NotRunning {
                pid: container.pid_inside(&process).unwrap_or(process.pid()),
                name: process.name().to_owned(),
                state,
            });
        }
    }
    Ok(())
}
