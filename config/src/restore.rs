//! What a restore may do on its own.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `[restore]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Restore {
    /// Which GPU takes the place of which, by UUID.
    pub gpu_map: BTreeMap<String, String>,
    /// What becomes of mounts of driver libraries that are not there.
    pub driver_libraries: DriverLibraries,
    /// What becomes of a restore to a GPU that is not in persistence mode.
    pub persistence: Persistence,
}

/// What becomes of mounts of driver libraries that are not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverLibraries {
    /// The same library of this machine's driver is mounted.
    #[default]
    Match,
    /// They are missing.
    Exact,
}

/// What becomes of a restore to a GPU that is not in persistence mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Persistence {
    /// It is refused.
    #[default]
    Require,
    /// The driver is asked all the same.
    Ignore,
}
