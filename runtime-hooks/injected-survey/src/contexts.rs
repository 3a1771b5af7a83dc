//! The primary contexts of a process, held for the time of one request.
//!
//! libcuda's own library for programs (the CUDA runtime) uses no others. A context that a program
//! has made by cuCtxCreate is not found by any call.

use core::ffi::c_int;

use crate::board::DEVICES;
use crate::driver::{Driver, Result};

/// Those that were there, by their devices; 0 where there is none.
pub(crate) struct Contexts {
    all: [u64; DEVICES],
    active: u64,
}

impl Contexts {
    /// Calls `work` with all contexts, and lets go of them.
    pub(crate) fn with(driver: Driver<'_>, work: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        let mut contexts = Self {
            all: [0; DEVICES],
            active: 0,
        };
        let retained = contexts.retain(driver);
        let worked = retained.and_then(|()| work(&contexts));
        worked.and(contexts.release(driver))
    }

    /// By bits: the devices that have one.
    pub(crate) fn active(&self) -> u64 {
        self.active
    }

    /// Each, with its device.
    pub(crate) fn each(&self) -> impl Iterator<Item = (c_int, u64)> {
        (0..).zip(self.all).filter(|(_, context)| *context != 0)
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
