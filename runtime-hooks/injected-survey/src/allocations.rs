//! The allocations of GPU memory, found by asking at addresses: no call lists them.
//!
//! With driver 580 each lies in a mapping without rights and without a name, or in one of a device
//! (host memory), and begins at a multiple of 2 MiB. Only small ones share 2 MiB: one of these is
//! found. That is enough: shared and too large allocations have whole multiples. (Variables of a
//! module look like memory that was opened by a legacy handle.)

use core::ops::Range;

use crate::board::{Allocation, Answer, Cursor, DEVICES, Kind, Request};
use crate::contexts::Contexts;
use crate::driver::{Attribute, Driver, Location, Result};
use crate::system::now;

/// Where an allocation can begin.
const STEP: u64 = 2 << 20;
/// Steps between two reads of the clock. Each takes some microseconds.
const STEPS: u64 = 64;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: u64 = 2;

/// The call that asks whether an address has an allocation: cheap where there is none, which is
/// nearly everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// The address range, which a context knows for all that it may use: 0.7 µs (H200).
    Range,
    /// The handle, which needs no context: 1.1 µs.
    Handle,
}

/// Looks for allocations until the answer is full or the time is over; notes where to continue.
pub(crate) fn allocations(
    driver: Driver<'_>,
    contexts: &Contexts,
    probe: Probe,
    request: &Request,
    answer: &mut Answer,
) -> Result<()> {
    let began = now();
    let (mut at, mut steps) = (request.from, 0_u64);
    while let Some(range) = range(request, at) {
        let address = at.address.max(range.start);
        if address >= range.end {
            at = Cursor {
                range: at.range + 1,
                address: 0,
            };
            continue;
        }
        let found = look(driver, contexts, probe, address)?;
        let end = found.map_or(0, |found| found.address.saturating_add(found.bytes));
        at.address = behind(address, end);
        let is_full = found.is_some_and(|found| !answer.add(found));
        steps += 1;
        let is_late = || steps.is_multiple_of(STEPS) && now() - began > request.limit_ns;
        if is_full || is_late() {
            break;
        }
    }
    answer.next = at;
    Ok(())
}

fn range(request: &Request, at: Cursor) -> Option<Range<u64>> {
    let index = usize::try_from(at.range).ok()?;
    let is_one = at.range < request.count;
    let item = request.items.get(index).filter(|_| is_one)?;
    Some(item.address..item.address.saturating_add(item.bytes))
}

/// Returns the allocation at an address.
fn look(
    driver: Driver<'_>,
    contexts: &Contexts,
    probe: Probe,
    address: u64,
) -> Result<Option<Allocation>> {
    let range = match probe {
        Probe::Range => driver.address_range(address).ok(),
        Probe::Handle => None,
    };
    if range.is_none() && probe == Probe::Range {
        return Ok(None);
    }
    let (start, bytes) = match range {
        // For host memory driver 580 reports that it begins at 0.
        Some((0, bytes)) => (address, bytes),
        Some(range) => range,
        None => (address, STEP),
    };
    let mut found = Allocation {
        address: start,
        bytes,
        kind: Kind::Unknown as u64,
        ..Allocation::default()
    };
    let Ok(handle) = driver.retain_handle(address) else {
        if range.is_some() {
            ordinary(driver, contexts, address, &mut found);
        }
        return Ok(range.map(|_| found));
    };
    let properties = driver.properties(handle);
    driver.release_handle(handle)?;
    if let Ok(properties) = properties {
        found.kind = Kind::Virtual as u64;
        found.handle = handle;
        found.location_type = u64::from(properties.location.kind.cast_unsigned());
        found.location = u64::from(properties.location.id.cast_unsigned());
        found.handle_types = u64::from(properties.handle_types.cast_unsigned());
        found.access = access(contexts, |location| {
            driver
                .access(location, address)
                .is_ok_and(|flags| flags != 0)
        });
    }
    Ok(Some(found))
}

/// Describes an allocation that is not of virtual memory management.
fn ordinary(driver: Driver<'_>, contexts: &Contexts, address: u64, found: &mut Allocation) {
    let attribute = |attribute| driver.attribute(attribute, address).unwrap_or_default();
    let pool = attribute(Attribute::Pool);
    let kind = if attribute(Attribute::IsManaged) != 0 {
        Kind::Managed
    } else if pool != 0 {
        Kind::Pool
    } else if attribute(Attribute::IsLegacyIpcCapable) == 0
        && attribute(Attribute::MemoryType) == DEVICE
    {
        Kind::LegacyImport
    } else {
        Kind::Ordinary
    };
    found.kind = kind as u64;
    if pool != 0 {
        found.access = access(contexts, |location| {
            driver
                .pool_access(pool, location)
                .is_ok_and(|flags| flags != 0)
        });
    }
}

/// By bits: the devices that have access.
fn access(contexts: &Contexts, has: impl Fn(Location) -> bool) -> u64 {
    let devices = contexts
        .each()
        .filter(|(device, _)| has(Location::of_device(*device)));
    devices.fold(0, |all, (device, _)| all | 1 << device)
}

/// Returns where the next allocation can begin, behind one that ends at `end`.
fn behind(address: u64, end: u64) -> u64 {
    let end = end.max(address.saturating_add(1));
    end.checked_next_multiple_of(STEP).unwrap_or(u64::MAX)
}

const _: () = assert!(DEVICES <= 64);
