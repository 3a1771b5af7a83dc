//! `stasis version`.

use std::fmt;

use serde::Serialize;

/// The version of this program.
#[derive(Debug, Serialize)]
pub struct Version {
    version: &'static str,
}

impl Version {
    /// Returns the version of this program.
    #[must_use]
    pub fn own() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stasis {}", self.version)
    }
}
