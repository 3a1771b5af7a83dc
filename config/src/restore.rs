//! Settings of restores.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[restore]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The registry and the beginning of the repositories, `HOST[:PORT]/PREFIX`, in which a new
    /// container may name an image; none may if it is empty.
    pub registry: String,
    /// How many images that were pulled from there for new containers are kept, beside those that
    /// are used.
    pub keep_pulled: usize,
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cpu {
    /// Refuse the restore.
    #[default]
    Require,
    /// Try it.
    Ignore,
}

/// How to treat mounts of driver libraries that do not exist here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverLibraries {
    /// Mount the same library of this machine's driver.
    #[default]
    Match,
    /// Leave them missing.
    Exact,
}

/// How to treat GPUs that are not in persistence mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Persistence {
    /// Refuse the restore, and a checkpoint after which the driver could restore nothing.
    #[default]
    Require,
    /// Try it.
    Ignore,
}

impl Default for Restore {
    fn default() -> Self {
        Self {
            images: Vec::new(),
            at_create: PathBuf::new(),
            keep_at_stop: 0,
            registry: String::new(),
            keep_pulled: 4,
            gpu_map: BTreeMap::new(),
            driver_libraries: DriverLibraries::default(),
            persistence: Persistence::default(),
            cpu: Cpu::default(),
        }
    }
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
        if self.registry.is_empty() {
            return Ok(());
        }
        if self.at_create.as_os_str().is_empty() {
            return Err((
                "restore.registry",
                "must be empty without restore.at_create",
            ));
        }
        match is_registry(&self.registry) {
            true => Ok(()),
            false => Err(("restore.registry", "must be HOST[:PORT]/PREFIX, or empty")),
        }
    }
}

/// Whether repositories of a registry can begin so.
fn is_registry(text: &str) -> bool {
    let rest = text.strip_prefix("http://");
    let rest = rest.or_else(|| text.strip_prefix("https://"));
    let Some((host, prefix)) = rest.unwrap_or(text).split_once('/') else {
        return false;
    };
    let of_host = |one: char| one.is_ascii_alphanumeric() || ".-:[]".contains(one);
    let is_host = host == "localhost" || host.contains(['.', ':']);
    let is_first = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
    let of_part = |one: char| is_first(one) || "._-".contains(one);
    let is_part = |part: &str| part.starts_with(is_first) && part.chars().all(of_part);
    is_host && host.chars().all(of_host) && prefix.split('/').all(is_part)
}
