//! Descriptors of memory of the process, open until the asking process has taken them.

use crate::board::{FILES, VisitState};
use crate::driver::{Driver, Other, Result};
use crate::errand::Errand;
use crate::system::close;

/// Makes one for each item, waits until all are taken (pidfd_getfd(2)), and closes them.
pub(crate) fn export(errand: Errand<'_>) -> Result<()> {
    let mut made = 0;
    let exported = export_all(errand, &mut made);
    if exported.is_ok() {
        errand.wait(VisitState::Holding, 1);
    }
    close_values(errand, made).and(exported)
}

fn export_all(errand: Errand<'_>, made: &mut usize) -> Result<()> {
    for (index, item) in errand.items().take(FILES) {
        let file = export_one(errand.driver, item.address);
        errand.set_value(index, [errand.of(index, file)?, 0]);
        *made = index + 1;
    }
    Ok(())
}

fn export_one(driver: Driver<'_>, address: u64) -> Result<u64> {
    let handle = driver.retain_handle(address)?;
    let file = driver.export(handle);
    let released = driver.release_handle(handle);
    if let (Ok(file), Err(_)) = (file, released) {
        let _ = close(file);
    }
    released.and(file)
}

/// Closes the descriptors in the first `count` values.
pub(crate) fn close_values(errand: Errand<'_>, count: usize) -> Result<()> {
    let mut all = Ok(());
    for index in 0..count {
        let [file, _] = errand.value(index);
        all = all.and(errand.of(index, closed(file)));
    }
    all
}

/// Closes a descriptor.
pub(crate) fn closed(file: u64) -> Result<()> {
    close(file).map_err(|errno| Other::Close.failed(errno))
}
