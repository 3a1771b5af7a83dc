//! Settings of restores.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// `[restore]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Restore {
    /// Directories below which images have to be that are restored, with nothing in them that
    /// others than root can write; all images may be restored if there are none.
    pub images: Vec<PathBuf>,
    /// The directory below which a new container may name an image that it begins with, in its
    /// annotation `io.stasis.restore`; no container may if it is empty.
    pub at_create: PathBuf,
    /// How many images of stopped containers are kept of each key below `at_create`, for those that
    /// ask for a checkpoint when they are stopped (`io.stasis.checkpoint`); 0: none is made.
    pub keep_at_stop: usize,
    /// Maps old to new GPUs, by UUID.
    pub gpu_map: BTreeMap<String, String>,
    /// How to treat mounts of driver libraries that do not exist here.
    pub driver_libraries: DriverLibraries,
    /// How to treat GPUs that are not in persistence mode.
    pub persistence: Persistence,
    /// How to treat a CPU that lacks what the image's machine had.
    pub cpu: Cpu,
}

/// How to treat a CPU that lacks instructions that programs of the image may have chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cpu {
    /// Refuse the restore.
    #[default]
    Require,
    /// Try it.
    Ignore,
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

impl Restore {
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        // Any other would depend on the directory in which a caller starts us.
        if !self.images.iter().all(|directory| directory.is_absolute()) {
            return Err(("restore.images", "must have absolute paths only"));
        }
        if self.at_create.is_relative() && !self.at_create.as_os_str().is_empty() {
            return Err(("restore.at_create", "must be an absolute path, or empty"));
        }
        if self.keep_at_stop > 0 && self.at_create.as_os_str().is_empty() {
            return Err((
                "restore.keep_at_stop",
                "must be 0 without restore.at_create",
            ));
        }
        Ok(())
    }
}
