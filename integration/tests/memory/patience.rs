//! Waiting for what takes longer on a busy machine than `wait_until_clear` waits.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `missing` has nothing to say any longer, which tells what is not yet as it should
/// be.
pub(crate) fn patiently(mut missing: impl FnMut() -> Result<Option<String>>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while let Some(still) = missing()? {
        ensure!(
            Instant::now() < deadline,
            "after {PATIENCE:?} still: {still}"
        );
        sleep(Duration::from_millis(50));
    }
    Ok(())
}
