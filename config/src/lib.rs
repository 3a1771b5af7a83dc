//! Settings of stasis: one TOML file, owned by root, every key of it known.
//!
//! Callers of an OCI runtime pass no environment (podman and CRI-O hand on two variables), so
//! nothing is taken from there, not even `PATH`.

mod bulk_memory;
mod error;
mod file;
mod low_level;
mod preflight;
mod restore;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use bulk_memory::{BulkMemory, Containers, MemoryTier};
pub use error::SettingsError;
pub use low_level::{Flavor, LowLevel};
pub use preflight::{BlockerKind, Preflight};
pub use restore::{DriverLibraries, Persistence, Restore};

/// The file that is read unless the command line names another.
pub const DEFAULT_PATH: &str = "/etc/stasis/stasis.toml";

/// Where distributions install CRIU's plugins.
const CRIU_PLUGIN_DIRS: [&str; 5] = [
    "/usr/lib/criu",
    "/usr/lib/x86_64-linux-gnu/criu",
    "/usr/lib/aarch64-linux-gnu/criu",
    "/usr/lib64/criu",
    "/usr/local/lib/criu",
];

/// All settings; the shipped `stasis.toml` documents each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The low-level runtime.
    pub runtime: Runtime,
    /// NVIDIA's libraries.
    pub driver: Driver,
    /// How long to try.
    pub deadlines: Deadlines,
    /// What is refused before a checkpoint.
    pub preflight: Preflight,
    /// How GPU contents are moved into host memory.
    pub gpu_checkpoint: GpuCheckpoint,
    /// Host memory for GPU contents.
    pub memory: Memory,
    /// How the bulk of memory is moved.
    pub bulk_memory: BulkMemory,
    /// What a restore may do on its own.
    pub restore: Restore,
    /// CRIU.
    pub criu: Criu,
    /// Directories.
    pub paths: Paths,
}

/// `[runtime]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runtime {
    /// runc or crun: a bare name, looked up in the system directories, or an absolute path.
    pub path: PathBuf,
    /// Which command line and state format it has; from the file name if not given.
    pub flavor: Option<Flavor>,
}

/// `[driver]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Driver {
    /// libcuda; found if not given.
    pub libcuda: Option<PathBuf>,
    /// libnvidia-ml; found if not given.
    pub nvml: Option<PathBuf>,
}

/// `[deadlines]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deadlines {
    /// Milliseconds for locking all CUDA processes of a container.
    pub lock_ms: u32,
    /// Milliseconds for one try on one process.
    pub lock_try_ms: u32,
    /// Seconds for a driver call that moves GPU contents or unlocks.
    pub driver_s: u32,
}

/// `[gpu_checkpoint]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuCheckpoint {
    /// Whether transparent huge pages are switched on while the driver fills host memory.
    pub huge_pages: bool,
}

/// `[memory]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Whether a container's memory limit is raised for the time that GPU contents are in its host memory.
    pub raise_limits: bool,
}

/// `[criu]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criu {
    /// The distribution's CRIU plugins, which stay in use apart from the CUDA one.
    pub plugin_dir: Option<PathBuf>,
}

/// `[paths]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Paths {
    /// Locks and records of operations; lost at a reboot, as containers are.
    pub state_dir: PathBuf,
    /// Logs that outlive operations.
    pub log_dir: PathBuf,
}

impl Settings {
    /// Reads the file that the command line names, or the default one. Only the default one may
    /// be absent, which means all defaults.
    ///
    /// # Errors
    /// [`SettingsError`].
    pub fn load(explicit: Option<&Path>) -> Result<Self, SettingsError> {
        let text = match explicit {
            Some(path) => Some((path, file::read(path)?)),
            None => {
                let path = Path::new(DEFAULT_PATH);
                file::read_if_there(path)?.map(|text| (path, text))
            }
        };
        match text {
            Some((path, text)) => Self::parse(path, &text),
            None => Ok(Self::default()),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, SettingsError> {
        let settings: Self =
            toml::from_str(text).map_err(|error| SettingsError::syntax(path, text, &error))?;
        settings
            .check()
            .map_err(|(key, what)| SettingsError::Value {
                path: path.to_owned(),
                key,
                what,
            })?;
        Ok(settings)
    }

    /// What the types do not say: the key that is wrong, and how.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let absolute = [
            ("driver.libcuda", self.driver.libcuda.as_deref()),
            ("driver.nvml", self.driver.nvml.as_deref()),
            ("bulk_memory.directory", Some(&self.bulk_memory.directory)),
            ("bulk_memory.plugin", Some(&self.bulk_memory.plugin)),
            ("criu.plugin_dir", self.criu.plugin_dir.as_deref()),
            ("paths.state_dir", Some(self.paths.state_dir.as_path())),
            ("paths.log_dir", Some(self.paths.log_dir.as_path())),
        ];
        for (key, path) in absolute {
            if path.is_some_and(|path| !path.is_absolute()) {
                return Err((key, "must be an absolute path"));
            }
        }
        let name = &self.runtime.path;
        if !name.is_absolute() && name.components().count() != 1 {
            return Err(("runtime.path", "must be a bare name or an absolute path"));
        }
        self.preflight.check()?;
        self.bulk_memory.check()?;
        self.deadlines.check()
    }
}

impl Deadlines {
    /// For the whole job.
    #[must_use]
    pub fn lock(&self) -> Duration {
        Duration::from_millis(self.lock_ms.into())
    }

    /// For one try on one process.
    #[must_use]
    pub fn lock_try(&self) -> Duration {
        Duration::from_millis(self.lock_try_ms.into())
    }

    /// For a driver call that moves GPU contents or unlocks.
    #[must_use]
    pub fn driver(&self) -> Duration {
        Duration::from_secs(self.driver_s.into())
    }

    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let sane = 1..=3_600_000;
        if !sane.contains(&self.lock_ms) {
            return Err(("deadlines.lock_ms", "must be between 1 and 3600000"));
        }
        if !(1..=self.lock_ms).contains(&self.lock_try_ms) {
            return Err((
                "deadlines.lock_try_ms",
                "must be between 1 and deadlines.lock_ms",
            ));
        }
        if !(1..=86_400).contains(&self.driver_s) {
            return Err(("deadlines.driver_s", "must be between 1 and 86400"));
        }
        Ok(())
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            path: "runc".into(),
            flavor: None,
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            lock_ms: 10_000,
            lock_try_ms: 200,
            driver_s: 600,
        }
    }
}

impl Default for GpuCheckpoint {
    fn default() -> Self {
        Self { huge_pages: true }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { raise_limits: true }
    }
}

impl Default for Criu {
    fn default() -> Self {
        let there = CRIU_PLUGIN_DIRS
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_dir());
        Self { plugin_dir: there }
    }
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            state_dir: "/run/stasis".into(),
            log_dir: "/var/log/stasis".into(),
        }
    }
}

#[cfg(test)]
mod tests;
