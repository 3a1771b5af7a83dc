//! Whether this machine and the new container can take GPU state, asked before anything is started.
//!
//! A restore that the driver fails for want of memory is final for the process (measured on
//! driver 580.159: every later try says 304), so all that is needed is looked for first. What is
//! refused here can be tried again: nothing has been changed.

mod needs;

use std::path::Path;

use stasis_config::{DriverLibraries, Settings};

use crate::allocation::allocated;
use crate::container::{Container, ContainerError};
use crate::cuda::{GpuMap, GpuUuid};
use crate::denial::Denial;
use crate::device_nodes::DeviceNodes;
use crate::device_numbers::{self, Number};
use crate::driver_libraries::DriverFiles;
use crate::driver_version::DriverVersion;
use crate::engine::Engine;
use crate::error::{Failure, Refusal};
use crate::gpu::{Gpu, Inventory};
use crate::gpu_map::{Wish, choose, complete};
use crate::manifest::{CudaProcess, Manifest};
use crate::memory_restore::MemoryRestore;
use crate::operation::Intent;
use crate::restored_memory::{self, RestoredMemory};
use crate::spec::Spec;
use crate::watchdog::WatchedDriver;

use needs::{Needs, Subject};

/// The first driver branch that restores to another GPU.
const FIRST_TO_MIGRATE: u32 = 580;

/// What a restore that was admitted works with.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Where GPU state goes, if the image has any.
    pub(crate) gpus: Option<GpuPlace>,
    /// Changes of the bundle's specification, if it needs any.
    pub(crate) changes: Option<Changes>,
    /// Host memory for it.
    pub(crate) memory: RestoredMemory,
    /// What is worth a note in the log.
    pub(crate) notes: Vec<String>,
    needs: Needs,
    /// The driver of this machine.
    driver_version: String,
}

/// Where the GPU state of an image goes.
#[derive(Debug)]
pub(crate) struct GpuPlace {
    /// The driver.
    pub(crate) driver: WatchedDriver,
    /// Which GPU takes the place of which.
    pub(crate) map: GpuMap,
    /// The device nodes that the container has to have.
    pub(crate) nodes: DeviceNodes,
}

/// The bundle's specification as it has to be on this machine.
#[derive(Debug)]
pub(crate) struct Changes(pub(crate) Spec);

/// Admits a restore, or says what is missing.
///
/// # Errors
/// [`Refusal`].
pub(crate) fn admit(
    engine: &Engine,
    id: &str,
    bundle: &Path,
    image: &Path,
    manifest: &Manifest,
    memory: Option<&MemoryRestore>,
) -> Result<Admission, Refusal> {
    let bulk = memory.map_or(0, MemoryRestore::bytes);
    if !manifest.has_gpu_state() {
        return admit_without_gpu(image, bulk, manifest);
    }
    let settings = &engine.settings;
    let driver = engine.open_driver(id)?;
    let inventory = Inventory::read(settings.driver.nvml.as_deref())?;
    let mut spec = Spec::read(bundle).map_err(Denial::from)?;
    let (pairs, needs) = place(settings, manifest, &inventory, &spec)?;
    let mut notes: Vec<String> = moved(&pairs)
        .map(|(old, new)| format!("{old} is restored to {new}"))
        .collect();
    let memory = restored_memory::admit(engine, &mut spec, image, bulk)?;
    let changes = adapt(settings, &inventory, &mut spec);
    let nodes = DeviceNodes::of(&spec);
    notes.extend(changes.iter().cloned());
    Ok(Admission {
        gpus: Some(GpuPlace {
            driver,
            map: full_map(pairs, &manifest.gpus, &inventory.gpus),
            nodes,
        }),
        changes: (memory.changed_spec() || !changes.is_empty()).then_some(Changes(spec)),
        memory,
        notes,
        needs,
        driver_version: inventory.driver_version,
    })
}

/// An image with nothing but bulk memory needs no more than it had.
fn admit_without_gpu(image: &Path, bulk: u64, manifest: &Manifest) -> Result<Admission, Refusal> {
    Ok(Admission {
        gpus: None,
        changes: None,
        memory: restored_memory::admit_host(image, bulk)?,
        notes: Vec::new(),
        needs: Needs::default(),
        driver_version: manifest.driver_version.clone(),
    })
}

/// Admits the GPU restore of a paused container that an operation left something to finish for.
/// Processes that are still on their GPUs need no room.
///
/// # Errors
/// [`Refusal`]; the container stays as it is.
pub(crate) fn admit_resume(
    settings: &Settings,
    container: &Container,
    intent: &Intent,
) -> Result<(), Refusal> {
    let inventory = Inventory::read(settings.driver.nvml.as_deref())?;
    let on_gpu: Vec<i32> = container
        .processes()
        .map_err(ContainerError::Processes)?
        .iter()
        .filter(|process| !inventory.uses(process.pid()).is_empty())
        .filter_map(|process| container.pid_inside(process))
        .collect();
    let waiting = |process: &&CudaProcess| !on_gpu.contains(&process.pid);
    let needs = Needs::of(intent.processes.iter().filter(waiting), Some);
    Ok(needs.check(settings, &inventory, Subject::PausedContainer)?)
}

type Pairs = Vec<(GpuUuid, GpuUuid)>;

/// A place for everything that the image holds.
fn place(
    settings: &Settings,
    manifest: &Manifest,
    inventory: &Inventory,
    spec: &Spec,
) -> Result<(Pairs, Needs), Denial> {
    check_version(manifest, inventory)?;
    let wish = Wish::of(spec, &settings.restore.gpu_map)?;
    let given = allocated(spec, inventory);
    let pairs = choose(&manifest.used_gpus(), &given, &wish)?;
    check_migration(&pairs, inventory)?;
    let place = |old| pairs.iter().find(|(each, _)| *each == old);
    let needs = Needs::of(manifest.processes.iter(), |old| Some(place(old)?.1));
    needs.check(settings, inventory, Subject::Image)?;
    Ok((pairs, needs))
}

/// What of the specification has to be other on this machine; says what was changed.
fn adapt(settings: &Settings, inventory: &Inventory, spec: &mut Spec) -> Vec<String> {
    let mut said = device_numbers::correct(spec, Number::here);
    if settings.restore.driver_libraries == DriverLibraries::Match {
        let files = DriverFiles::of(&inventory.driver_version);
        said.extend(files.replace_missing(spec));
    }
    said
}

fn moved(pairs: &[(GpuUuid, GpuUuid)]) -> impl Iterator<Item = &(GpuUuid, GpuUuid)> {
    pairs.iter().filter(|(old, new)| old != new)
}

/// Where every GPU stays the driver is given no map: it needs none then, and older ones know none.
fn full_map(pairs: Pairs, theirs: &[Gpu], ours: &[Gpu]) -> GpuMap {
    if moved(&pairs).next().is_none() {
        return GpuMap::identity();
    }
    let others = complete(&pairs, theirs, ours);
    GpuMap::new(pairs).with_others(others)
}

/// A version that cannot be read is not known to be older.
fn check_version(manifest: &Manifest, inventory: &Inventory) -> Result<(), Denial> {
    let image = DriverVersion::parse(&manifest.driver_version);
    let here = DriverVersion::parse(&inventory.driver_version);
    match (image, here) {
        (Some(image), Some(here)) if here < image => Err(Denial::OlderDriver {
            image: manifest.driver_version.clone(),
            here: inventory.driver_version.clone(),
        }),
        _ => Ok(()),
    }
}

fn check_migration(pairs: &[(GpuUuid, GpuUuid)], inventory: &Inventory) -> Result<(), Denial> {
    let here = DriverVersion::parse(&inventory.driver_version);
    match (moved(pairs).next(), here) {
        (Some((old, new)), Some(here)) if here.branch() < FIRST_TO_MIGRATE => {
            Err(Denial::NoMigration {
                here: inventory.driver_version.clone(),
                old: *old,
                new: *new,
            })
        }
        _ => Ok(()),
    }
}

impl Admission {
    /// Adds what only admission knows to a failure.
    pub(crate) fn explain(
        &self,
        engine: &Engine,
        manifest: &Manifest,
        failure: Failure,
    ) -> Failure {
        match failure {
            Failure::LowLevel(failure) if manifest.driver_version != self.driver_version => {
                Failure::OtherDriver {
                    failure: Box::new(failure),
                    image: manifest.driver_version.clone(),
                    here: self.driver_version.clone(),
                }
            }
            failure => self.explain_room(engine, failure),
        }
    }

    /// To an out-of-memory answer of the driver, what was needed and what there was: somebody took
    /// the room after it was looked for.
    fn explain_room(&self, engine: &Engine, failure: Failure) -> Failure {
        let inventory = Inventory::read(engine.settings.driver.nvml.as_deref());
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
