//! The primary contexts of a process, held for the time of one request.
//!
//! libcuda's own library for programs (the CUDA runtime) uses no others. A context that a program
//! has made by cuCtxCreate is not found by any call.

use core::ffi::c_int;

use crate::board::DEVICES;
use crate::driver::{Driver, Other, Result};

/// The primary contexts, by their devices; 0 where there is none.
pub(crate) struct Contexts {
    all: [u64; DEVICES],
    active: u64,
}

impl Contexts {
    /// Calls `work` with all contexts, and releases them.
    pub(crate) fn with(driver: Driver<'_>, work: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let mut contexts = Self {
            all: [0; DEVICES],
            active: 0,
        };
        let retained = contexts.retain(driver);
        let worked = retained.and_then(|()| work(&contexts));
        worked.and(contexts.release(driver))
    }

    /// By bits: the devices that have a primary context.
    pub(crate) fn active(&self) -> u64 {
        self.active
    }

    /// Each context, with its device.
    pub(crate) fn each(&self) -> impl Iterator<Item = (c_int, u64)> {
        (0..).zip(self.all).filter(|(_, context)| *context != 0)
    }

    /// Returns the context of a device.
    pub(crate) fn of(&self, device: c_int) -> Option<u64> {
        let mut each = self.each();
        each.find(|(other, _)| *other == device)
            .map(|(_, context)| context)
    }

    /// Calls `work` while the context of a device is the thread's.
    pub(crate) fn with_current<T>(
        &self,
        driver: Driver<'_>,
        device: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let ordinal = c_int::try_from(device).unwrap_or(c_int::MAX);
        let context = self.of(ordinal);
        let context = context.ok_or_else(|| Other::Context.failed(ordinal))?;
        with(driver, context, work)
    }

    /// Calls `work` while some context is the thread's, if there is one.
    pub(crate) fn with_some_current<T>(
        &self,
        driver: Driver<'_>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match self.each().next() {
            Some((_, context)) => with(driver, context, work),
            None => work(),
        }
    }

    fn retain(&mut self, driver: Driver<'_>) -> Result<()> {
        for (device, context) in (0..driver.device_count()?).zip(&mut self.all) {
            if driver.has_primary_context(device)? {
                *context = driver.retain_context(device)?;
                self.active |= 1 << device;
            }
        }
        Ok(())
    }

    fn release(&self, driver: Driver<'_>) -> Result<()> {
        let mut all = Ok(());
        for (device, _) in self.each() {
            all = all.and(driver.release_context(device));
        }
        all
    }
}

fn with<T>(driver: Driver<'_>, context: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    driver.push(context)?;
    let worked = work();
    let popped = driver.pop();
    worked.and_then(|value| popped.map(|()| value))
}
