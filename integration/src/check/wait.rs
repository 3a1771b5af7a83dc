//! Waiting for conditions.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Waits until `missing` returns `None`. Until then it describes what is not as it should be.
///
/// # Errors
/// It still returns a text after 30 s, or fails.
pub fn wait_until_clear(missing: impl FnMut() -> Result<Option<String>>) -> Result<()> {
    wait_within(Duration::from_secs(30), missing)
}

/// As [`wait_until_clear`], with another limit.
pub fn wait_within(
    limit: Duration,
    mut missing: impl FnMut() -> Result<Option<String>>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    while let Some(still) = missing()? {
        if Instant::now() > deadline {
            bail!("after {} s still: {still}", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
