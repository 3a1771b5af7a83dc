//! Memory of other processes is given up; its addresses stay reserved.
//!
//! A process that has such memory is lost by its restore (driver 580.159).

use core::ffi::c_int;

use crate::board::{Cursor, Item};
use crate::contexts::Contexts;
use crate::driver::{Driver, Location, Other, READ_WRITE, Result};
use crate::errand::Errand;
use crate::system::now;

/// More references than any program has.
const MOST: u64 = 64;
/// `CUDA_ERROR_INVALID_VALUE`: the handle is of no memory.
const NO_HANDLE: c_int = 1;

/// Drops until the time is over; returns where to continue. The value of each item: how many
/// references there were, with one of ours.
pub(crate) fn drop_imports(errand: Errand<'_>, contexts: &Contexts) -> Result<Cursor> {
    let began = now();
    let mut next = errand.request.from;
    let first = usize::try_from(next.range).unwrap_or(usize::MAX);
    for (index, item) in errand.items().filter(|(index, _)| *index >= first) {
        let references = drop_one(errand.driver, contexts, item);
        errand.set_value(index, [errand.of(index, references)?, 0]);
        next.range += 1;
        if now() - began > errand.request.limit_ns {
            break;
        }
    }
    Ok(next)
}

/// Drops one import. A failure changes nothing; without memory there, it was dropped before.
fn drop_one(driver: Driver<'_>, contexts: &Contexts, item: Item) -> Result<u64> {
    let Ok(handle) = driver.retain_handle(item.address) else {
        return Ok(0);
    };
    let unmapped = can_come_back(driver, contexts, item.address)
        .and_then(|()| driver.unmap(item.address, item.bytes));
    if unmapped.is_err() {
        return unmapped.and(driver.release_handle(handle)).map(|()| 0);
    }
    release_all(driver, handle)
}

/// Fails if a device has access other than read and write: it could not be restored.
fn can_come_back(driver: Driver<'_>, contexts: &Contexts, address: u64) -> Result<()> {
    for device in 0..driver.device_count()? {
        let access = driver.access(Location::of_device(device), address);
        match access.map(|flags| c_int::try_from(flags).unwrap_or(c_int::MAX)) {
            Ok(0 | READ_WRITE) => {}
            Ok(flags) => return Err(Other::Access.failed(flags)),
            // The process may not know a device that it does not use.
            Err(failed) if contexts.of(device).is_some() => return Err(failed),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Releases all references; returns how many there were.
pub(crate) fn release_all(driver: Driver<'_>, handle: u64) -> Result<u64> {
    let mut released = 0;
    while released < MOST {
        match driver.release_handle(handle) {
            Ok(()) => released += 1,
            Err(failed) if failed.result == NO_HANDLE && released > 0 => return Ok(released),
            Err(failed) => return Err(failed),
        }
    }
    Err(Other::References.failed(0))
}
