//! Checks whether this machine can take an image, before its container is made.

use std::sync::Arc;

use stasis_config::Settings;
use stasis_gpu::cuda::CudaDriver;
use stasis_gpu::cuda::nvml::{Gpu, Inventory};
use stasis_gpu::ledger::gpu_memory::GpuMemory;
use stasis_gpu::ledger::{Reservation, WaitLimit};
use stasis_linux::procfs::MemInfo;

use super::gpu_map::RequestedMap;
use super::gpu_memory::IMAGE;
use super::machine::check_cpu;
use super::visible_gpus::allocated;
use super::{notes_of, place};
use crate::container::host_memory::{HostRoom, NoHostMemory, admit_host, needed_for};
use crate::container::spec::Spec;
use crate::error::Refusal;
use crate::error::admission::AdmissionError;
use crate::image::manifest::Manifest;

/// The answer of a machine that can take an image.
#[derive(Debug, Default)]
pub struct Asked {
    /// For people.
    pub notes: Vec<String>,
    /// Why CRIU will fail, if a process has a library of the driver mapped.
    pub other_libraries: Option<String>,
}

/// The container that is to be made of an image.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'s> {
    /// A container that may use all GPUs of the machine.
    Anybodys,
    /// A container with this specification.
    Its(&'s Spec),
}

/// When it is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Now: memory that others use is not free.
    Now,
    /// Later: others may have ended then. A GPU of the same product is large enough.
    Later,
}

/// Makes the checks of [`super::admit`] for a container without a memory limit. Changes nothing,
/// and reserves nothing. `bytes` of host memory are needed.
///
/// # Errors
/// [`Refusal`], as a restore would return it.
pub fn ask(
    settings: &Settings,
    manifest: &Manifest,
    bytes: u64,
    whose: Whose<'_>,
    when: When,
) -> Result<Asked, Refusal> {
    check_cpu(settings, manifest)?;
    let reservation = Arc::new(Reservation::only_asking(&settings.paths.state_dir));
    let mut asked = Asked::default();
    if manifest.has_gpu_state() {
        CudaDriver::open(settings.driver.libcuda.as_deref())?;
        let inventory = Inventory::read(settings)?;
        let (given, requested) = whose.gpus(settings, &inventory)?;
        let (pairs, needs) = place(settings, manifest, &inventory, &given, &requested)?;
        if when == When::Now {
            let gpus = GpuMemory::new(&reservation, WaitLimit::none(), settings);
            needs.reserve(&gpus, || Inventory::read(settings), IMAGE)?;
        }
        asked.notes = notes_of(&pairs);
        asked.other_libraries = (manifest.driver_version != inventory.driver_version).then(|| {
            format!(
                "the image was made with driver {}, and this machine has {}: CRIU restores no \
                 process that has other driver libraries mapped",
                manifest.driver_version, inventory.driver_version
            )
        });
    }
    match when {
        When::Now => admit_host(HostRoom(&reservation, WaitLimit::none()), bytes)?,
        When::Later => check_host(bytes)?,
    }
    Ok(asked)
}

/// Refuses an image that the machine could not hold even if it had nothing else.
fn check_host(bytes: u64) -> Result<(), Refusal> {
    let needed = needed_for(bytes);
    let read = MemInfo::read().map_err(NoHostMemory::from)?;
    match read.total() {
        Some(total) if total < needed => Err(AdmissionError::SmallHost { needed, total }.into()),
        _ => Ok(()),
    }
}

impl Whose<'_> {
    /// Returns the GPUs that the container gets, and the map that it requests.
    fn gpus(
        self,
        settings: &Settings,
        inventory: &Inventory,
    ) -> Result<(Vec<Gpu>, RequestedMap), AdmissionError> {
        let map = &settings.restore.gpu_map;
        if let Self::Its(spec) = self {
            return Ok((allocated(spec, inventory), RequestedMap::of(spec, map)?));
        }
        // With a free choice, takes the emptiest GPUs first.
        let mut given = inventory.gpus.clone();
        given.sort_by_key(|gpu| std::cmp::Reverse(inventory.free_bytes.get(&gpu.uuid).copied()));
        Ok((given, RequestedMap::of_settings(map)?))
    }
}
