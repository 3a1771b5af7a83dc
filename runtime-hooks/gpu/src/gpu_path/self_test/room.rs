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

/// Reserves room on the first GPU that has it, an idle one if there is one. An operation that
/// relies on this room could otherwise not put a job back, which would lose the job.
pub(super) fn reserve(settings: &Settings) -> Result<Room, NoGpu> {
    let inventory = Inventory::read(settings)?;
    let reservation = Arc::new(Reservation::new(&settings.paths.state_dir, NAME));
    let memory = GpuMemory::new(&reservation, WaitLimit::none(), settings);
    for gpu in idle_first(&inventory) {
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

/// Lists the GPUs, the less used first. A long kernel of a restored process ends with an error
/// where another process uses its GPU (driver 580; the engine's `neighbours.rs`).
fn idle_first(inventory: &Inventory) -> Vec<GpuUuid> {
    let mut gpus: Vec<GpuUuid> = inventory.gpus.iter().map(|gpu| gpu.uuid).collect();
    let users = |gpu: &GpuUuid| {
        let each = inventory.processes.values().flatten();
        each.filter(|used| used.uuid == *gpu).count()
    };
    gpus.sort_by_key(users);
    gpus
}

fn can_be_used(inventory: &Inventory, gpu: GpuUuid) -> bool {
    inventory
        .facts
        .get(&gpu)
        .is_some_and(|facts| facts.mig != Mig::Enabled && facts.persistence != Persistence::Off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::nvml::{Gpu, ListedUse};

    #[test]
    fn an_idle_gpu_comes_first() {
        let uuid = |number| GpuUuid::from_bytes([number; 16]);
        let gpus = [1, 2, 3].map(|number| Gpu {
            uuid: uuid(number),
            name: String::new(),
            memory_bytes: 1,
        });
        let used = |number| ListedUse {
            uuid: uuid(number),
            memory_bytes: None,
        };
        let inventory = Inventory {
            gpus: gpus.into(),
            processes: [(7, vec![used(1), used(3)]), (8, vec![used(1)])].into(),
            ..Inventory::default()
        };
        assert_eq!(idle_first(&inventory), [uuid(2), uuid(3), uuid(1)]);
    }
}
