//! Orders for the stand-in for the driver: how its next calls go.

use std::fs;

use anyhow::Result;

use super::installed::{DRIVER_ORDERS, StasisHost};
use crate::check::wait::wait_until_clear;

/// The file that holds them, in [`DRIVER_ORDERS`].
const ORDERS: &str = "/run/stasis-standin/faults";

impl StasisHost {
    /// Replaces the orders, one a line: `CALL TAG ACTION [COUNT]`.
    ///
    /// # Errors
    /// An I/O error.
    pub fn inject(&self, orders: &str) -> Result<()> {
        self.host.write(ORDERS, &format!("{orders}\n"))
    }

    /// Holds the next driver call that a line of the orders describes ("checkpoint TAG"), until
    /// [`StasisHost::let_driver_go`] is called with the same name.
    ///
    /// # Errors
    /// An I/O error.
    pub fn hold_driver(&self, call: &str, name: &str) -> Result<()> {
        self.host.write(&format!("{DRIVER_ORDERS}/{name}"), "")?;
        self.inject(&format!("{call} hold:{name} 1"))
    }

    /// Lets a held driver call go on.
    ///
    /// # Errors
    /// None was to be held by that name.
    pub fn let_driver_go(&self, name: &str) -> Result<()> {
        let hold = self.host.path(format!("{DRIVER_ORDERS}/{name}"));
        Ok(fs::remove_file(hold)?)
    }

    /// Whether the driver has got all the calls that the last order is for. That order needs a
    /// COUNT, which the stand-in counts down.
    ///
    /// # Errors
    /// An I/O error.
    pub fn driver_is_called(&self) -> Result<bool> {
        let orders = fs::read_to_string(self.host.path(ORDERS))?;
        Ok(orders.ends_with(" 0\n"))
    }

    /// Waits for [`StasisHost::driver_is_called`].
    ///
    /// # Errors
    /// The driver has not got the calls after 30 s.
    pub fn until_driver_is_called(&self) -> Result<()> {
        wait_until_clear(|| {
            let called = self.driver_is_called()?;
            Ok((!called).then(|| "the driver call of the last order".to_owned()))
        })
    }
}
