//! Whether this machine can take an image, for a container that is not known yet.

use std::path::Path;
use std::sync::Arc;

use stasis_config::Settings;

use crate::container::host_memory::HostRoom;
use crate::cuda::CudaDriver;
use crate::cuda::nvml::Inventory;
use crate::error::Refusal;
use crate::image::manifest::Manifest;
use crate::ledger::gpu_memory::GpuMemory;
use crate::ledger::{Patience, Reservation};
use crate::restore::host_memory;

use super::gpu_map::RequestedMap;
use super::gpu_memory::Subject;
use super::machine::check_cpu;
use super::{notes_of, place};

/// What a machine that can take an image has to say of it.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// For people.
    pub(crate) notes: Vec<String>,
    /// Why CRIU will fail, unless no process has a library of the driver mapped.
    pub(crate) other_libraries: Option<String>,
}

/// Asks what [`super::admit`] does of a container that is given all GPUs of the machine and has no
/// memory limit, now. Changes nothing, and reserves nothing. `bulk` are the bytes of bulk memory.
///
/// # Errors
/// [`Refusal`], as a restore.
pub(crate) fn ask(
    settings: &Settings,
    image: &Path,
    manifest: &Manifest,
    bulk: u64,
) -> Result<Asked, Refusal> {
    check_cpu(settings, manifest)?;
    let reservation = Arc::new(Reservation::only_asking(&settings.paths.state_dir));
    let mut asked = Asked::default();
    if manifest.has_gpu_state() {
        CudaDriver::open(settings.driver.libcuda.as_deref())?;
        let inventory = Inventory::read(settings)?;
        let requested = RequestedMap::of_settings(&settings.restore.gpu_map)?;
        // Whoever may choose takes the emptiest.
        let mut given = inventory.gpus.clone();
        given.sort_by_key(|gpu| std::cmp::Reverse(inventory.free_bytes.get(&gpu.uuid).copied()));
        let (pairs, needs) = place(settings, manifest, &inventory, &given, &requested)?;
        let gpus = GpuMemory::new(&reservation, Patience::none(), settings);
        needs.reserve(&gpus, || Inventory::read(settings), Subject::Image)?;
        asked.notes = notes_of(&pairs);
        asked.other_libraries = (manifest.driver_version != inventory.driver_version).then(|| {
            format!(
                "the image was made with driver {}, and this machine has {}: CRIU restores no \
                 process that has other driver libraries mapped",
                manifest.driver_version, inventory.driver_version
            )
        });
    }
    let room = HostRoom {
        reservation: &reservation,
        patience: &Patience::none(),
    };
    host_memory::admit_host(room, image, bulk)?;
    Ok(asked)
}
