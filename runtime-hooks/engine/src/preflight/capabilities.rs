//! Abilities of this machine that not every machine has. Each capability has a fall-back: the parts
//! of stasis that use it say which.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stasis_config::Settings;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_linux::cgroup::Hierarchies;

use crate::low_level::criu_program::CriuProgram;
use crate::low_level::criu_version::CriuVersion;

const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The capabilities of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The kernel.
    pub kernel: Kernel,
    /// The mounted versions of cgroups.
    pub cgroups: Cgroups,
    /// The CRIU that the low-level runtime will use.
    pub criu: Criu,
    /// Our plugin for CRIU, if it is installed.
    pub plugin: Option<PathBuf>,
}

/// The kernel's release and page size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// "6.18.0-amd64"
    pub release: String,
    /// The page size in bytes.
    pub page_size: usize,
}

/// The mounted versions of cgroups. Each is used for what it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cgroups {
    /// Version 1 alone.
    V1,
    /// Version 2 alone.
    V2,
    /// Both.
    Hybrid,
    /// No version was found.
    None,
}

/// The CRIU of dumps and restores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Criu {
    /// Its version.
    Version(CriuVersion),
    /// There is no CRIU.
    Missing,
    /// The reason why its version is not known.
    Unknown(String),
}

/// A CRIU that stasis does not use.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnusableCriu(String);

impl Criu {
    /// Returns its version; `None` if there is none, or it is not known.
    pub fn version(&self) -> Option<CriuVersion> {
        match self {
            Self::Version(version) => Some(*version),
            Self::Missing | Self::Unknown(_) => None,
        }
    }

    /// Whether stasis uses this CRIU.
    pub fn usable(&self) -> Result<(), UnusableCriu> {
        let needed = CriuVersion::NEEDED;
        Err(UnusableCriu(match self {
            Self::Version(version) if *version >= needed => return Ok(()),
            Self::Version(version) => {
                format!("CRIU {version} is too old; install {needed} or newer")
            }
            Self::Missing => format!("criu is not installed; install CRIU {needed} or newer"),
            Self::Unknown(why) => format!("CRIU does not report its version: {why}"),
        }))
    }
}

impl Capabilities {
    /// Looks at the machine. A capability that cannot be found out counts as missing.
    #[must_use]
    pub fn probe(settings: &Settings) -> Self {
        let plugin = &settings.gpu_contents.plugin;
        Self {
            kernel: Kernel::probe(),
            cgroups: Cgroups::probe(),
            criu: match CriuProgram::installed().map(|criu| criu.version) {
                Some(Ok(version)) => Criu::Version(version),
                None => Criu::Missing,
                Some(Err(error)) => Criu::Unknown(error.to_string()),
            },
            plugin: plugin.is_file().then(|| plugin.clone()),
        }
    }
}

/// Returns the kernel's release, "6.18.0-amd64"; empty if it cannot be read.
pub(crate) fn kernel_release() -> String {
    let release = fs::read_to_string(RELEASE).unwrap_or_default();
    release.trim().to_owned()
}

/// Returns the version of NVIDIA's driver, by NVML.
///
/// # Errors
/// The reason why it is not known.
pub fn driver_version(settings: &Settings) -> Result<String, String> {
    let inventory = Inventory::read(settings);
    match inventory {
        Ok(inventory) => Ok(inventory.driver_version),
        Err(error) => Err(stasis_linux::error_chain(&error)),
    }
}

impl Kernel {
    fn probe() -> Self {
        Self {
            release: kernel_release(),
            page_size: rustix::param::page_size(),
        }
    }
}

impl Cgroups {
    fn probe() -> Self {
        let Ok(mounted) = Hierarchies::read() else {
            return Self::None;
        };
        let v1 = ["freezer", "memory", "pids"]
            .iter()
            .any(|name| mounted.has_v1(name));
        match (v1, mounted.v2(Path::new("/")).is_some()) {
            (true, true) => Self::Hybrid,
            (true, false) => Self::V1,
            (false, true) => Self::V2,
            (false, false) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_what_the_tests_need() {
        let kernel = Kernel::probe();
        assert_eq!(kernel.page_size, 4096);
        assert!(kernel.release.contains('.'), "{kernel:?}");
        assert_ne!(Cgroups::probe(), Cgroups::None);
    }
}
