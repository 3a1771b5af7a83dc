//! Settings of restores.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `[restore]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Restore {
    /// Maps old to new GPUs, by UUID.
    pub gpu_map: BTreeMap<String, String>,
    /// How to treat mounts of driver libraries that do not exist here.
    pub driver_libraries: DriverLibraries,
    /// How to treat GPUs that are not in persistence mode.
    pub persistence: Persistence,
}

/// How to treat mounts of driver libraries that do not exist here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverLibraries {
    /// Mount the same library of this machine's driver.
    #[default]
    Match,
    /// Leave them missing.
    Exact,
}

/// How to treat GPUs that are not in persistence mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Persistence {
    /// Refuse the restore, and a checkpoint after which the driver could restore nothing.
    #[default]
    Require,
    /// Try it.
    Ignore,
}
