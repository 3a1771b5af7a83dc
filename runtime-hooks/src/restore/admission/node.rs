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
use super::{notes_of, place};

/// Asks what [`super::admit`] does of a container that is given all GPUs of the machine and has no
/// memory limit, now. Changes nothing, and reserves nothing. `bulk` are the bytes of bulk memory.
/// Returns notes for people.
///
/// # Errors
/// [`Refusal`], as a restore.
pub(crate) fn ask(
    settings: &Settings,
    image: &Path,
    manifest: &Manifest,
    bulk: u64,
) -> Result<Vec<String>, Refusal> {
    let reservation = Arc::new(Reservation::only_asking(&settings.paths.state_dir));
    let mut notes = Vec::new();
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
        notes = notes_of(&pairs);
        if manifest.driver_version != inventory.driver_version {
            notes.push(format!(
                "the image was made with driver {}, and this machine has {}: CRIU restores no \
                 process that has other driver libraries mapped",
                manifest.driver_version, inventory.driver_version
            ));
        }
    }
    let room = HostRoom {
        reservation: &reservation,
        patience: &Patience::none(),
    };
    host_memory::admit_host(room, image, bulk)?;
    Ok(notes)
}
