//! The GPU memory that a restore needs, and whether the GPUs have it free.

use stasis_config::Settings;
use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::gpu_use::{CudaProcess, GpuBytes, add};
use stasis_gpu::cuda::nvml::{Inventory, InventoryError, Mig, Persistence, UnreadGpu};
use stasis_gpu::ledger::NotReserved;
use stasis_gpu::ledger::gpu_memory::GpuMemory;

use crate::error::admission::AdmissionError;
use crate::restore::admission::gpu_map::list;

/// The bytes needed on each GPU, by all processes together.
#[derive(Debug, Default)]
pub(crate) struct Needs(GpuBytes);

/// The source of the GPU state and its way to the GPUs, for messages.
pub(super) struct Subject(&'static str, &'static str);

pub(super) const IMAGE: Subject = Subject("the image", "restore");
pub(super) const SUSPENDED_CONTAINER: Subject = Subject("the container", "resume");

impl Needs {
    /// The memory that these processes held, on the GPUs of the map. NVML's figure for a process
    /// includes its context.
    pub(super) fn of<'p>(
        processes: impl Iterator<Item = &'p CudaProcess>,
        place: impl Fn(GpuUuid) -> Option<GpuUuid>,
    ) -> Self {
        let mut needs = GpuBytes::new();
        for gpu in processes.flat_map(|process| &process.gpus) {
            if let Some(new) = place(gpu.uuid) {
                add(&mut needs, &GpuBytes::from([(new, gpu.memory_bytes)]));
            }
        }
        Self(needs)
    }

    /// Checks that the driver can restore to these GPUs.
    pub(super) fn check_modes(
        &self,
        settings: &Settings,
        inventory: &Inventory,
    ) -> Result<(), AdmissionError> {
        let mut uuids = self.0.keys();
        uuids.try_for_each(|uuid| check_mode(*uuid, settings, inventory))
    }

    /// Reserves the memory, if the GPUs have it free.
    pub(super) fn reserve(
        &self,
        gpus: &GpuMemory,
        look: impl Fn() -> Result<Inventory, InventoryError>,
        Subject(what, again): Subject,
    ) -> Result<(), AdmissionError> {
        gpus.admit(&self.0, look).map_err(|error| match error {
            NotReserved::Short(short) => AdmissionError::NoRoom { short, what, again },
            NotReserved::Unknown(error) => AdmissionError::Inventory(error),
            NotReserved::Ledger(error) => AdmissionError::Ledger(error),
        })
    }

    /// A text with the needed and the free memory of each GPU.
    pub(super) fn beside(&self, inventory: &Inventory) -> String {
        let room = self.0.iter().map(|(uuid, needed)| {
            let free = inventory.free_bytes.get(uuid).copied().unwrap_or(0);
            format!(
                "{uuid} has {} MiB free, and the image needs {} MiB",
                free >> 20,
                needed.div_ceil(1 << 20)
            )
        });
        room.collect::<Vec<_>>().join(", ")
    }
}

/// Checks that the driver can restore to a GPU.
fn check_mode(
    uuid: GpuUuid,
    settings: &Settings,
    inventory: &Inventory,
) -> Result<(), AdmissionError> {
    let Some(facts) = inventory.facts.get(&uuid) else {
        let there = list(&inventory.gpus);
        return Err(match inventory.unread(uuid) {
            Some(UnreadGpu { error, .. }) => AdmissionError::GpuUnread {
                uuid,
                what: error.clone(),
            },
            None => AdmissionError::GpuVanished { uuid, there },
        });
    };
    if facts.mig == Mig::Enabled {
        return Err(AdmissionError::Mig { uuid });
    }
    if let Some(client) = facts.mps_clients.first() {
        return Err(AdmissionError::Mps {
            uuid,
            client: *client,
        });
    }
    let required = settings.restore.persistence == stasis_config::Persistence::Require;
    if required && facts.persistence == Persistence::Off {
        return Err(AdmissionError::NoPersistence { uuid });
    }
    Ok(())
}
