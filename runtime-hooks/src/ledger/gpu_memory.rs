//! Memory of GPUs, of which NVML says how much is free.

use std::sync::Arc;

use stasis_config::Settings;

use crate::cuda::failure::NoRoom;
use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::nvml::{Inventory, InventoryError};
use crate::cuda::process_set::room::Room;
use crate::ledger::amounts::{Amounts, Resource, Short};
use crate::ledger::{NotReserved, Patience, Reservation, WaitFor};

/// What NVML may list as allocated on a GPU that nobody uses.
const HARDLY_ANYTHING: u64 = 64 << 20;

/// The GPU memory of an operation.
#[derive(Debug)]
pub(crate) struct GpuMemory {
    reservation: Arc<Reservation>,
    patience: Patience,
    settings: Settings,
}

impl GpuMemory {
    pub(crate) fn new(
        reservation: &Arc<Reservation>,
        patience: Patience,
        settings: &Settings,
    ) -> Self {
        Self {
            reservation: Arc::clone(reservation),
            patience,
            settings: settings.clone(),
        }
    }

    /// Reserves so much for a container that is not on its GPUs, if they have it. Waits only for
    /// other operations.
    ///
    /// # Errors
    /// [`NotReserved`].
    pub(crate) fn admit(
        &self,
        needed: &GpuBytes,
        look: impl Fn() -> Result<Inventory, InventoryError>,
    ) -> Result<(), NotReserved<InventoryError>> {
        let free = || Ok(Amounts::from(&look()?.free_bytes));
        self.reserve_if(needed, WaitFor::Reservations, free)
    }

    fn reserve_if(
        &self,
        needed: &GpuBytes,
        wait_for: WaitFor,
        look: impl Fn() -> Result<Amounts, InventoryError>,
    ) -> Result<(), NotReserved<InventoryError>> {
        let wanted = Amounts::from(needed);
        self.reservation
            .reserve(&wanted, wait_for, &self.patience, look)
    }
}

/// For processes that go back to where they were.
impl Room for GpuMemory {
    /// Where NVML does not answer, or the ledger cannot be used, nothing is known: then the driver
    /// is asked, since nobody could say until when a process would have to wait.
    fn reserve(&self, needed: &GpuBytes) -> Result<(), NoRoom> {
        let look = || Ok(free_again(&Inventory::read(&self.settings)?));
        match self.reserve_if(needed, WaitFor::Room, look) {
            Err(NotReserved::Short(short)) => short.no_room().map_or(Ok(()), Err),
            Ok(()) | Err(NotReserved::Unknown(_) | NotReserved::Ledger(_)) => Ok(()),
        }
    }
}

impl Short {
    /// The same of a GPU.
    pub(crate) fn no_room(&self) -> Option<NoRoom> {
        let Resource::Gpu(uuid) = self.resource else {
            return None;
        };
        Some(NoRoom {
            uuid,
            needed: self.wanted,
            free: self.free,
            reserved: self.reserved.to_string(),
        })
    }
}

/// For processes that were on these GPUs before. They fit where nobody else is, also if what they
/// held could only be estimated, as all that was allocated (`cuda/gpu_use.rs`).
fn free_again(inventory: &Inventory) -> Amounts {
    let whole = |(uuid, free): (_, &u64)| {
        let used = inventory.used_bytes.get(uuid).copied().unwrap_or(u64::MAX);
        let free = match used {
            0..=HARDLY_ANYTHING => free.saturating_add(used),
            _ => *free,
        };
        (*uuid, free)
    };
    Amounts::from(&inventory.free_bytes.iter().map(whole).collect::<GpuBytes>())
}
