//! Waiting for events that take longer on a busy machine than `wait_until_clear` waits.

use std::time::Duration;

use anyhow::Result;
use stasis_integration::check::wait::wait_within;

/// Waits for two minutes until `missing` returns nothing.
pub(crate) fn patiently(missing: impl FnMut() -> Result<Option<String>>) -> Result<()> {
    wait_within(Duration::from_secs(120), missing)
}
