//! Memory of other processes is given up; its addresses stay reserved.
//!
//! A process that has such memory is lost by its restore (driver 580.159).

use core::ffi::c_int;

use crate::board::{Cursor, Item};
use crate::contexts::Contexts;
use crate::driver::{Driver, Location, Other, READ_WRITE, Result};
use crate::errand::Errand;
use crate::system::now;

/// Drops until the time is over; returns where to continue. The value of each item: how many
/// references there were, with one of ours.
pub(crate) fn drop_imports(errand: Errand<'_>, contexts: &Contexts) -> Result<Cursor> {
    let began = now();
    let mut next = errand.request.from;
    let first = usize::try_from(next.range).unwrap_or(usize::MAX);
    for (index, item) in errand.items().filter(|(index, _)| *index >= first) {
        let references = drop_one(errand, contexts, item);
        errand.set_value(index, [errand.of(index, references)?, 0]);
        next.range += 1;
        if now() - began > errand.request.limit_ns {
            break;
        }
    }
    Ok(next)
}

/// Drops one import. A failure changes nothing; without memory there, it was dropped before.
fn drop_one(errand: Errand<'_>, contexts: &Contexts, item: Item) -> Result<u64> {
    let driver = errand.driver;
    let Ok(handle) = driver.retain_handle(item.address) else {
        return Ok(0);
    };
    let unmapped = can_come_back(driver, contexts, item.address)
        .and_then(|()| driver.unmap(item.address, item.bytes));
    if unmapped.is_err() {
        return unmapped.and(driver.release_handle(handle)).map(|()| 0);
    }
    errand.hooks.release_all(driver, handle)
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
