//! Orders for the stand-in for the driver: the outcomes of its next calls.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};

use anyhow::{Result, ensure};

use super::installed::{DRIVER_ORDERS, SELF_TESTS, StasisHost};
use crate::check::wait::wait_until_clear;

/// The file that holds them, in [`DRIVER_ORDERS`].
const ORDERS: &str = "/run/stasis-standin/faults";
const MEMORY: &str = "memory ";
/// In a result of the self-test.
const SURVEYED: &str = r#""surveys":"passed""#;

impl StasisHost {
    /// Replaces the orders, one a line: `CALL TAG ACTION [COUNT]`.
    pub fn inject(&self, orders: &str) -> Result<()> {
        self.change_orders(|before| {
            *before = orders.lines().map(str::to_owned).collect();
            0
        })
        .map(drop)
    }

    /// Adds an order with a COUNT to the existing ones.
    pub fn add_order(&self, order: &str) -> Result<()> {
        self.change_orders(|orders| {
            orders.push(order.to_owned());
            0
        })
        .map(drop)
    }

    /// Takes the orders for a call back; returns how many calls they still were for.
    pub fn take_order(&self, call: &str, tag: &str) -> Result<u32> {
        let order = format!("{call} {tag} ");
        self.change_orders(|orders| {
            let count = |line: &String| line.rsplit(' ').next()?.parse::<u32>().ok();
            let ours = orders.extract_if(.., |line| line.starts_with(&order));
            ours.filter_map(|line| count(&line)).sum()
        })
    }

    /// Has the driver as one whose surveys have failed: what processes share is guessed then. It is
    /// tried again once the results ([`SELF_TESTS`]) are removed.
    pub fn surveys_have_failed(&self) -> Result<()> {
        for result in fs::read_dir(self.path(SELF_TESTS))? {
            let result = result?.path();
            let text = fs::read_to_string(&result)?;
            let failed = r#""surveys":{"not_passed":{"why":"a test has it so"}}"#;
            ensure!(text.contains(SURVEYED), "{text}");
            fs::write(&result, text.replace(SURVEYED, failed))?;
        }
        Ok(())
    }

    /// Gives each GPU this many MiB; `None` for as many as it has without an order.
    pub fn set_gpu_memory(&self, mib: Option<u32>) -> Result<()> {
        self.change_orders(|orders| {
            orders.retain(|line| !line.starts_with(MEMORY));
            orders.extend(mib.map(|mib| format!("{MEMORY}{mib}")));
            0
        })
        .map(drop)
    }

    /// Returns how many MiB each GPU has by order.
    pub fn gpu_memory(&self) -> Result<Option<u32>> {
        let path = self.path(ORDERS);
        // The file does not exist before the first order.
        if !path.exists() {
            return Ok(None);
        }
        let orders = self.orders()?;
        let mut lines = orders.lines();
        Ok(lines.find_map(|line| line.strip_prefix(MEMORY)?.parse().ok()))
    }

    fn orders(&self) -> Result<String> {
        // A half-written file has no whole orders.
        let mut file = File::open(self.path(ORDERS))?;
        file.lock_shared()?;
        let mut orders = String::new();
        file.read_to_string(&mut orders)?;
        Ok(orders)
    }

    /// Changes the orders under the lock that the stand-in takes to count down.
    fn change_orders(&self, change: impl FnOnce(&mut Vec<String>) -> u32) -> Result<u32> {
        let mut file = File::options();
        let file = file.read(true).write(true).create(true).truncate(false);
        let mut file = file.open(self.path(ORDERS))?;
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut orders: Vec<String> = text.lines().map(str::to_owned).collect();
        let answer = change(&mut orders);
        orders.retain(|line| !line.is_empty());
        file.rewind()?;
        file.set_len(0)?;
        file.write_all((orders.join("\n") + "\n").as_bytes())?;
        Ok(answer)
    }

    /// Holds the next driver call that a line of the orders describes ("checkpoint TAG"), until
    /// [`StasisHost::let_driver_go`] is called with the same name.
    pub fn hold_driver(&self, call: &str, name: &str) -> Result<()> {
        self.hold_driver_at(&[(call, name)])
    }

    /// Holds the next driver calls of each of these descriptions, by a name for each.
    pub fn hold_driver_at(&self, holds: &[(&str, &str)]) -> Result<()> {
        let mut orders = String::new();
        for (call, name) in holds {
            self.write(&format!("{DRIVER_ORDERS}/{name}"), "")?;
            orders += &format!("{call} hold:{name} 1\n");
        }
        self.inject(orders.trim_end())
    }

    /// Holds this many of the next driver calls that a line of the orders describes.
    pub fn hold_driver_for(&self, call: &str, name: &str, calls: usize) -> Result<()> {
        self.write(&format!("{DRIVER_ORDERS}/{name}"), "")?;
        self.inject(&format!("{call} hold:{name} {calls}"))
    }

    /// Lets a held driver call go on.
    pub fn let_driver_go(&self, name: &str) -> Result<()> {
        let hold = self.path(format!("{DRIVER_ORDERS}/{name}"));
        Ok(fs::remove_file(hold)?)
    }

    /// Whether the driver has got all the calls that the last order is for. That order needs a
    /// COUNT, which the stand-in counts down.
    pub fn driver_is_called(&self) -> Result<bool> {
        Ok(self.orders()?.ends_with(" 0\n"))
    }

    /// Returns for how many more calls the last order is.
    pub fn calls_left(&self) -> Result<usize> {
        let orders = self.orders()?;
        let count = orders.trim_end().rsplit(' ').next();
        Ok(count.unwrap_or_default().parse()?)
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
