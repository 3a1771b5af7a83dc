//! Checks that this machine and the new container can take GPU state, before anything is started.
//!
//! A driver restore that fails for lack of memory loses the process (measured on driver 580.159:
//! every later try returns 304), so all requirements are checked first. A restore refused here can
//! be tried again: nothing has been changed.

pub mod described;
pub(crate) mod gpu_map;
mod gpu_memory;
mod machine;
pub mod node;
pub(crate) mod visible_gpus;

use std::path::Path;

use stasis_config::{DriverLibraries, Settings};
use stasis_gpu::cuda::gpu_use::CudaProcess;
use stasis_gpu::cuda::nvml::{Gpu, Inventory};
use stasis_gpu::cuda::watchdog::WatchedDriver;
use stasis_gpu::cuda::{GpuMap, GpuUuid};
use stasis_gpu::ledger::gpu_memory::GpuMemory;

use crate::bulk_memory::restore::MemoryRestore;
use crate::container::host_memory::HostRoom;
use crate::container::spec::Spec;
use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::error::admission::AdmissionError;
use crate::error::{Failure, Refusal};
use crate::image::manifest::Manifest;
use crate::operation::{Intent, Operation};
use crate::preflight::cuda_processes::open_driver;
use crate::restore::admission::gpu_map::{RequestedMap, choose, complete};
use crate::restore::admission::visible_gpus::allocated;
use crate::restore::device_nodes::DeviceNodes;
use crate::restore::device_numbers::{self, Number};
use crate::restore::driver_libraries::DriverFiles;
use crate::restore::host_memory;
use gpu_memory::{IMAGE, Needs, SUSPENDED_CONTAINER};
use machine::{check_cpu, check_migration, check_version};

/// The data of an admitted restore.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The destination of GPU state, if the image has any.
    pub(crate) gpus: Option<GpuPlace>,
    /// The bundle's specification, corrected for this machine, if it needs that.
    pub(crate) changed: Option<Spec>,
    /// Notes for the log.
    pub(crate) notes: Vec<String>,
    needs: Needs,
    /// The driver of this machine.
    driver_version: String,
}

/// The destination of an image's GPU state.
#[derive(Debug)]
pub(crate) struct GpuPlace {
    /// The driver.
    pub(crate) driver: WatchedDriver,
    /// The map from the image's GPUs to those of the container.
    pub(crate) map: GpuMap,
    /// The device nodes that the container needs.
    pub(crate) nodes: DeviceNodes,
}

/// Admits a restore and reserves the memory that it needs, or returns what is missing.
pub(crate) fn admit(
    context: &Context,
    id: &str,
    bundle: &Path,
    image: &Path,
    manifest: &Manifest,
    memory: Option<&MemoryRestore>,
    operation: &Operation,
) -> Result<Admission, Refusal> {
    let bulk = memory.map_or(0, MemoryRestore::bytes);
    let room = HostRoom(operation.reservation(), context.wait_limit());
    check_cpu(&context.settings, manifest)?;
    if !manifest.has_gpu_state() {
        return admit_without_gpu(room, image, bulk, manifest);
    }
    let settings = &context.settings;
    let driver = open_driver(context, id)?;
    let inventory = Inventory::read(settings)?;
    let mut spec = Spec::read(bundle).map_err(AdmissionError::from)?;
    let requested = RequestedMap::of(&spec, &settings.restore.gpu_map)?;
    let given = allocated(&spec, &inventory);
    let (pairs, needs) = place(settings, manifest, &inventory, &given, &requested)?;
    let look = || Inventory::read(settings);
    needs.reserve(&operation.gpu_memory(context), look, IMAGE)?;
    let mut notes = notes_of(&pairs);
    let is_outside = memory.is_some_and(|memory| memory.has_gpu_contents_of(manifest));
    match is_outside {
        true => host_memory::admit_host(room, image, bulk)?,
        false => host_memory::admit(room, &spec, image, bulk)?,
    }
    let changes = adapt(settings, &inventory, &mut spec);
    let nodes = DeviceNodes::of(&spec);
    notes.extend(changes.iter().cloned());
    Ok(Admission {
        gpus: Some(GpuPlace {
            driver,
            map: full_map(pairs, &manifest.gpus, &inventory.gpus),
            nodes,
        }),
        changed: (!changes.is_empty()).then_some(spec),
        notes,
        needs,
        driver_version: inventory.driver_version,
    })
}

/// Admits an image without GPU state: only the host's memory is checked.
fn admit_without_gpu(
    room: HostRoom<'_>,
    image: &Path,
    bulk: u64,
    manifest: &Manifest,
) -> Result<Admission, Refusal> {
    host_memory::admit_host(room, image, bulk)?;
    Ok(Admission {
        gpus: None,
        changed: None,
        notes: Vec::new(),
        needs: Needs::default(),
        driver_version: manifest.driver_version.clone(),
    })
}

/// Admits bringing back the processes of an intent, if their GPUs have the memory, and reserves it.
///
/// # Errors
/// [`Refusal`]; the container stays as it is.
pub(crate) fn admit_with_room(
    settings: &Settings,
    container: &Container,
    intent: &Intent,
    gpus: &GpuMemory,
) -> Result<(), Refusal> {
    let needs = admit_resume(settings, container, intent)?;
    let look = || Inventory::read(settings);
    Ok(needs.reserve(gpus, look, SUSPENDED_CONTAINER)?)
}

/// Checks that the driver can restore to the GPUs of an intent's processes, even without room on
/// them, and returns their needs. Processes whose state is still on their GPUs need nothing.
///
/// # Errors
/// [`Refusal`]; the container stays as it is.
pub(crate) fn admit_resume(
    settings: &Settings,
    container: &Container,
    intent: &Intent,
) -> Result<Needs, Refusal> {
    let inventory = Inventory::read(settings)?;
    let on_gpu: Vec<i32> = container
        .snapshot()
        .map_err(ContainerError::Processes)?
        .candidates()
        .iter()
        .filter(|process| !inventory.uses(process.pid()).is_empty())
        .filter_map(|process| container.pid_inside(process))
        .collect();
    let waiting = |process: &&CudaProcess| !on_gpu.contains(&process.pid);
    let needs = Needs::of(intent.back_to_gpu().filter(waiting), Some);
    needs.check_modes(settings, &inventory)?;
    Ok(needs)
}

type Pairs = Vec<(GpuUuid, GpuUuid)>;

/// Finds a destination for all GPU state of the image, among the GPUs that a container is given.
fn place(
    settings: &Settings,
    manifest: &Manifest,
    inventory: &Inventory,
    given: &[Gpu],
    requested: &RequestedMap,
) -> Result<(Pairs, Needs), AdmissionError> {
    check_version(manifest, inventory)?;
    let pairs = choose(&manifest.used_gpus(), given, requested)?;
    check_migration(&pairs, inventory)?;
    let place = |old| pairs.iter().find(|(each, _)| *each == old);
    let needs = Needs::of(manifest.processes.iter(), |old| Some(place(old)?.1));
    needs.check_modes(settings, inventory)?;
    Ok((pairs, needs))
}

/// Corrects the specification for this machine, and returns a note for each change.
fn adapt(settings: &Settings, inventory: &Inventory, spec: &mut Spec) -> Vec<String> {
    let mut notes = device_numbers::correct(spec, Number::here);
    if settings.restore.driver_libraries == DriverLibraries::Match {
        let files = DriverFiles::of(&inventory.driver_version);
        notes.extend(files.replace_missing(spec));
    }
    notes
}

fn notes_of(pairs: &Pairs) -> Vec<String> {
    let notes = moved(pairs).map(|(old, new)| format!("{old} is restored to {new}"));
    notes.collect()
}

fn moved(pairs: &[(GpuUuid, GpuUuid)]) -> impl Iterator<Item = &(GpuUuid, GpuUuid)> {
    pairs.iter().filter(|(old, new)| old != new)
}

/// The map for the driver; empty if no GPU changes, since older drivers accept no map.
fn full_map(pairs: Pairs, theirs: &[Gpu], ours: &[Gpu]) -> GpuMap {
    if moved(&pairs).next().is_none() {
        return GpuMap::identity();
    }
    let others = complete(&pairs, theirs, ours);
    GpuMap::new(pairs).with_others(others)
}

impl Admission {
    /// Adds facts of the admission to a failure.
    pub(crate) fn explain(
        &self,
        context: &Context,
        manifest: &Manifest,
        failure: Failure,
    ) -> Failure {
        match failure {
            Failure::LowLevel(failure) if manifest.driver_version != self.driver_version => {
                Failure::OtherDriver {
                    failure,
                    image: manifest.driver_version.clone(),
                    here: self.driver_version.clone(),
                }
            }
            failure => self.explain_room(context, failure),
        }
    }

    /// Adds needed and free memory to an out-of-memory error of the driver: another program took
    /// the memory after the check.
    fn explain_room(&self, context: &Context, failure: Failure) -> Failure {
        let inventory = Inventory::read(&context.settings);
        let (Failure::Job(error), Ok(inventory)) = (&failure, inventory) else {
            return failure;
        };
        if failure.out_of_memory().is_none() {
            return failure;
        }
        Failure::OutOfGpuMemory {
            fault: error.fault.to_string(),
            room: self.needs.beside(&inventory),
        }
    }
}

#[cfg(test)]
mod tests;
