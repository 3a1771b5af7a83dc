//! A GPU that has room for the process that is tried.

use std::sync::Arc;

use stasis_config::Settings;

use crate::cuda::GpuUuid;
use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::nvml::{Inventory, InventoryError, Mig, Persistence};
use crate::ledger::gpu_memory::GpuMemory;
use crate::ledger::{Reservation, WaitLimit};

/// The most memory of the process: its context has 0.5 GiB with driver 580 on an H200.
const NEEDED: u64 = 1 << 30;
/// Name of the reservation in the ledger.
const NAME: &str = "gpu-self-test";

/// A GPU with room that is reserved for the test.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) gpu: GpuUuid,
    _reservation: Arc<Reservation>,
}

/// Why no GPU can be used.
#[derive(Debug, thiserror::Error)]
pub enum NoGpu {
    /// NVML cannot list the GPUs.
    #[error("the GPUs of this node are not known")]
    Inventory(#[from] InventoryError),
    /// Too little room, MIG, or no persistence mode.
    #[error(
        "no GPU has {} MiB free for it, persistence mode and no MIG slices; free one for some \
         seconds and try again",
        NEEDED >> 20
    )]
    NoneWithRoom,
}

/// Reserves room on the first GPU that has it: an operation that relies on this room could
/// otherwise not put a job back, which would lose the job.
pub(super) fn reserve(settings: &Settings) -> Result<Room, NoGpu> {
    let inventory = Inventory::read(settings)?;
    let reservation = Arc::new(Reservation::new(&settings.paths.state_dir, NAME));
    let memory = GpuMemory::new(&reservation, WaitLimit::none(), settings);
    for gpu in inventory.gpus.iter().map(|gpu| gpu.uuid) {
        let needed = GpuBytes::from([(gpu, NEEDED)]);
        let look = || Inventory::read(settings);
        if can_be_used(&inventory, gpu) && memory.admit(&needed, look).is_ok() {
            return Ok(Room {
                gpu,
                _reservation: reservation,
            });
        }
    }
    Err(NoGpu::NoneWithRoom)
}

fn can_be_used(inventory: &Inventory, gpu: GpuUuid) -> bool {
    inventory
        .facts
        .get(&gpu)
        .is_some_and(|facts| facts.mig != Mig::Enabled && facts.persistence != Persistence::Off)
}
