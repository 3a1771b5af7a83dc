//! Random cases that repeat.

use anyhow::{Context, Result};

/// The seed of a test's random cases: `STASIS_SEED`, and 1 without it, so that every run of CI
/// does the same.
pub fn seed() -> Result<u64> {
    number("STASIS_SEED", 1)
}

/// The number that an environment variable has, else `default`.
pub fn number(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{variable}={text:?} is no number")),
        Err(_) => Ok(default),
    }
}
