//! Memory of GPUs, of which NVML reports the free bytes.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use stasis_config::Settings;

use crate::cuda::failure::NoRoom;
use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::nvml::{Inventory, InventoryError};
use crate::cuda::process_set::room::Room;
use crate::ledger::amounts::{Amounts, Free, Resource, Short};
use crate::ledger::{NotReserved, Reservation, WaitFor, WaitLimit};

/// The most bytes that NVML lists as allocated on a GPU without users.
const HARDLY_ANYTHING: u64 = 64 << 20;

/// The GPU memory of an operation.
#[derive(Debug)]
pub struct GpuMemory {
    reservation: Arc<Reservation>,
    wait_limit: WaitLimit,
    settings: Settings,
}

impl GpuMemory {
    /// Memory that is reserved in this entry of the ledger.
    pub fn new(reservation: &Arc<Reservation>, wait_limit: WaitLimit, settings: &Settings) -> Self {
        Self {
            reservation: Arc::clone(reservation),
            wait_limit,
            settings: settings.clone(),
        }
    }

    /// Reserves GPU memory for a container that is not on its GPUs, if they have it. Waits only for
    /// other operations.
    pub fn admit(
        &self,
        needed: &GpuBytes,
        look: impl Fn() -> Result<Inventory, InventoryError>,
    ) -> Result<(), NotReserved<InventoryError>> {
        let free = || Ok(Amounts::from(&look()?.free_bytes));
        self.reserve_if(needed, WaitFor::Reservations, free)
    }

    fn reserve_if<E>(
        &self,
        needed: &GpuBytes,
        wait_for: WaitFor,
        look: impl Fn() -> Result<Amounts, E>,
    ) -> Result<(), NotReserved<E>> {
        let wanted = Amounts::from(needed);
        self.reservation
            .reserve(&wanted, wait_for, &self.wait_limit, look)
    }
}

/// Room for processes that go back to their GPUs.
impl Room for GpuMemory {
    /// If NVML does not answer, only the reservations of others are known. Without any the driver
    /// is called: there would be no end to a process's wait.
    fn reserve(&self, needed: &GpuBytes) -> Result<(), NoRoom> {
        let free = |inventory: Inventory| free_again(&inventory);
        let look = || Ok(Inventory::read(&self.settings).map_or_else(|_| Amounts::default(), free));
        match self.reserve_if::<Infallible>(needed, WaitFor::Room, look) {
            Ok(()) => Ok(()),
            Err(NotReserved::Short(short)) => short.no_room().map_or(Ok(()), Err),
            Err(NotReserved::Unknown(never)) => match never {},
            Err(NotReserved::Ledger(error)) => no_ledger(needed, &error).map_or(Ok(()), Err),
        }
    }
}

/// Refuses room beside others whose reservations cannot be read.
fn no_ledger(needed: &GpuBytes, error: &io::Error) -> Option<NoRoom> {
    let (uuid, needed) = needed.first_key_value()?;
    Some(NoRoom {
        uuid: *uuid,
        needed: *needed,
        free: Free(None).to_string(),
        reserved: format!(" (cannot use the ledger of memory, below the state directory: {error})"),
    })
}

impl Short {
    /// Returns the same as a lack of room on a GPU.
    pub(crate) fn no_room(&self) -> Option<NoRoom> {
        let Resource::Gpu(uuid) = self.resource else {
            return None;
        };
        Some(NoRoom {
            uuid,
            needed: self.wanted,
            free: self.free.to_string(),
            reserved: self.reserved.to_string(),
        })
    }
}

/// Returns the free memory for processes that were on these GPUs. They fit where no other is, also
/// if their memory could only be estimated, as all that was allocated (`cuda/gpu_use.rs`).
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cuda::GpuUuid;

    fn gpu_memory(state_dir: &Path, id: &str) -> GpuMemory {
        let mut settings = Settings::default();
        settings.driver.nvml = Some("/nonexistent".into());
        let reservation = Arc::new(Reservation::new(state_dir, id));
        GpuMemory::new(&reservation, WaitLimit::none(), &settings)
    }

    #[test]
    fn without_nvml_one_goes_back_at_a_time() {
        let state_dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|id| gpu_memory(state_dir.path(), id));
        let needed = GpuBytes::from([(GpuUuid::from_bytes([1; 16]), 1 << 20)]);
        a.reserve(&needed).unwrap();
        let text = b.reserve(&needed).unwrap_err().to_string();
        assert!(
            text.contains("an unknown amount free, of which operations on a (process"),
            "{text}"
        );
        drop(a);
        b.reserve(&needed).unwrap();
    }

    #[test]
    fn nobody_goes_back_whose_ledger_cannot_be_used() {
        let state_dir = tempfile::NamedTempFile::new().unwrap();
        let needed = GpuBytes::from([(GpuUuid::from_bytes([1; 16]), 1 << 20)]);
        let text = gpu_memory(state_dir.path(), "a")
            .reserve(&needed)
            .unwrap_err()
            .to_string();
        assert!(text.contains("cannot use the ledger of memory"), "{text}");
    }
}
