//! Room in the tier, and on the host, for what a checkpoint stores.

use std::io;

use crate::container::Container;
use crate::ledger::amounts::{Amounts, Resource, Short};
use crate::ledger::{NotReserved, Patience, Reservation, WaitFor};
use crate::operation::estimate::anonymous_of;

/// The store's page tables, its index, and the padding to huge pages.
pub(super) const MARGIN: u64 = 128 << 20;

/// Where the GPU contents of a container are to be for its dump, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuContentsIn {
    /// Files, which are the store's own if that is in memory.
    Files(u64),
    /// The same, of processes that go on once CRIU has dumped them.
    FilesUntilTheyGoOn(u64),
    /// Memory of their processes, from where they are copied.
    Memory(u64),
}

impl GpuContentsIn {
    /// Whether they are in files.
    pub(crate) fn are_in_files(self) -> bool {
        match self {
            Self::Files(_) | Self::FilesUntilTheyGoOn(_) => true,
            Self::Memory(_) => false,
        }
    }
}

/// What is to be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'c> {
    /// The processes.
    pub(crate) container: &'c Container,
    /// Beside what is in their memory now.
    pub(crate) gpu: GpuContentsIn,
}

impl<'c> Stored<'c> {
    /// A container that has nothing on GPUs.
    pub(crate) fn without_gpu(container: &'c Container) -> Self {
        let gpu = GpuContentsIn::Memory(0);
        Self { container, gpu }
    }
}

/// What is to be reserved.
pub(super) fn wanted(stored: Stored<'_>) -> io::Result<Amounts> {
    let wanted = match stored.gpu {
        GpuContentsIn::Files(bytes) | GpuContentsIn::FilesUntilTheyGoOn(bytes) => {
            vec![(Resource::RamTier, bytes.saturating_add(MARGIN))]
        }
        GpuContentsIn::Memory(bytes) => {
            let all = anonymous_of(stored.container)?.saturating_add(bytes);
            both(all.saturating_add(MARGIN), bytes)
        }
    };
    Ok(wanted.into_iter().collect())
}

/// So much in the tier, and with it on the host, which needs more for the processes.
pub(super) fn both(tier: u64, processes: u64) -> Vec<(Resource, u64)> {
    let host = tier.saturating_add(processes);
    vec![(Resource::RamTier, tier), (Resource::HostMemory, host)]
}

pub(super) fn no_room(short: &Short) -> String {
    format!(
        "there is no room for it in memory: {} has {} free{}, and {} MiB are needed \
         (bulk_memory.ram_limit_percent)",
        short.resource,
        short.free,
        short.reserved,
        short.wanted.div_ceil(1 << 20)
    )
}

/// Reserves room in the tier and on the host; returns what there is too little of.
pub(super) fn reserve(
    reservation: &Reservation,
    wanted: &Amounts,
    look: impl Fn() -> io::Result<Amounts>,
) -> io::Result<Option<Box<Short>>> {
    let reservations = WaitFor::Reservations;
    match reservation.reserve(wanted, reservations, &Patience::none(), look) {
        Ok(()) => Ok(None),
        Err(NotReserved::Short(short)) => Ok(Some(short)),
        Err(NotReserved::Unknown(error) | NotReserved::Ledger(error)) => Err(error),
    }
}
