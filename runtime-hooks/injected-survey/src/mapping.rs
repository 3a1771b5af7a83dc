//! Maps one import as it was, or elsewhere as a trial. A step that fails is undone.

use crate::board::Item;
use crate::driver::{Driver, Result};
use crate::errand::Errand;

/// Maps an import at its address, with as many references beside the mapping as it had, and a
/// handle of the same value. Memory that is mapped there already stays as it is.
pub(crate) fn map_again(errand: Errand<'_>, item: Item, file: u64) -> Result<()> {
    let Errand { driver, hooks, .. } = errand;
    if let Ok(handle) = driver.retain_handle(item.address) {
        return driver.release_handle(handle);
    }
    let handle = hooks.import_as(driver, file, item.handle)?;
    let mapped = map(driver, item.address, item, handle);
    if mapped.is_err() {
        let _ = driver.release_handle(handle);
        return mapped;
    }
    leave_references(driver, item, handle)?;
    hooks.release_value();
    Ok(())
}

/// Leaves `item.first` references. A new handle has one.
fn leave_references(driver: Driver<'_>, item: Item, handle: u64) -> Result<()> {
    let mut has = 1;
    let mut left = Ok(());
    if item.first == 0 {
        left = driver.release_handle(handle);
    }
    while left.is_ok() && has < item.first {
        left = driver.retain_handle(item.address).map(drop);
        has += u64::from(left.is_ok());
    }
    if left.is_err() {
        let _ = driver.unmap(item.address, item.bytes);
        for _ in 0..has {
            let _ = driver.release_handle(handle);
        }
    }
    left
}

/// Maps an import at free addresses, unmaps it, and imports it again with the same handle.
pub(crate) fn rehearse(errand: Errand<'_>, item: Item, file: u64) -> Result<()> {
    let Errand { driver, hooks, .. } = errand;
    let address = driver.reserve(item.bytes)?;
    let mapped = driver.import(file).and_then(|handle| {
        let mapped = map(driver, address, item, handle);
        let unmapped = mapped.and_then(|()| driver.unmap(address, item.bytes));
        let again = hooks
            .release_all(driver, handle)
            .and_then(|_| again(errand, handle, file));
        unmapped.and(again)
    });
    mapped.and(driver.give_back(address, item.bytes))
}

/// Imports memory with a handle whose value is kept, and releases both.
fn again(Errand { driver, hooks, .. }: Errand<'_>, handle: u64, file: u64) -> Result<()> {
    let imported = hooks.import_as(driver, file, handle);
    if imported.is_err() {
        hooks.free_value(handle);
    } else {
        hooks.release_value();
    }
    driver.release_handle(imported?)
}

fn map(driver: Driver<'_>, address: u64, item: Item, handle: u64) -> Result<()> {
    driver.map(address, item.bytes, handle)?;
    let access = driver.set_access(address, item.bytes, item.device);
    if access.is_err() {
        let _ = driver.unmap(address, item.bytes);
    }
    access
}
