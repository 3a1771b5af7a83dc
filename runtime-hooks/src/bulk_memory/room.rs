//! Room in memory for the contents that a checkpoint stores there.

use std::io;

use crate::ledger::amounts::{Amounts, Resource, Short};
use crate::ledger::{NotReserved, Patience, Reservation, WaitFor};

/// The store's page tables, its index, and the padding to huge pages.
const MARGIN: u64 = 128 << 20;

/// How many bytes of GPU contents of a container are to be in files for its dump, which are the
/// store's own if that is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuContentsIn {
    /// Of processes that end, or wait.
    Files(u64),
    /// Of processes that go on once CRIU has dumped them.
    FilesUntilTheyGoOn(u64),
}

/// What is to be reserved. Room on the host for the files is reserved already.
pub(super) fn wanted(stored: GpuContentsIn) -> Amounts {
    let (GpuContentsIn::Files(bytes) | GpuContentsIn::FilesUntilTheyGoOn(bytes)) = stored;
    Amounts::from_iter([(Resource::Contents, bytes.saturating_add(MARGIN))])
}

pub(super) fn no_room(short: &Short) -> String {
    format!(
        "there is no room for it in memory: {} has {} free{}, and {} MiB are needed",
        short.resource,
        short.free,
        short.reserved,
        short.wanted.div_ceil(1 << 20)
    )
}

/// Reserves room; returns what there is too little of.
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
