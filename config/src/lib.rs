//! Settings of stasis: one TOML file, owned by root, every key of it known.
//!
//! Callers of an OCI runtime pass no environment (podman and CRI-O pass on two variables), so
//! stasis reads no setting from there, not even `PATH`.

mod deadlines;
mod error;
pub mod exposure;
mod file;
mod gpu_checkpoint;
mod gpu_contents;
pub mod hooks;
pub mod interface;
mod low_level;
mod preflight;
mod restore;
mod words;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use deadlines::Deadlines;
pub use error::SettingsError;
pub use gpu_checkpoint::{GpuCheckpoint, GpuCheckpointPath};
pub use gpu_contents::GpuContents;
pub use hooks::Hooks;
pub use low_level::{Flavor, LowLevel, is_program};
pub use preflight::{BlockerKind, DiskSpace, ExecSessions, Preflight};
pub use restore::{Cpu, DriverLibraries, Persistence, Restore};

/// The file that is read unless the command line names another.
pub const DEFAULT_PATH: &str = "/etc/stasis/stasis.toml";

/// Where distributions install CRIU's plugins.
const CRIU_PLUGIN_DIRS: [&str; 4] = [
    "/usr/lib/criu",
    "/usr/lib/x86_64-linux-gnu/criu",
    "/usr/lib64/criu",
    "/usr/local/lib/criu",
];

/// All settings; the shipped `stasis.toml` documents each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The low-level runtime.
    pub runtime: Runtime,
    /// NVIDIA's libraries.
    pub driver: Driver,
    /// Time limits.
    pub deadlines: Deadlines,
    /// Blockers that do not refuse a checkpoint.
    pub preflight: Preflight,
    /// How the driver moves GPU contents into host memory.
    pub gpu_checkpoint: GpuCheckpoint,
    /// Commands that are run in containers.
    pub hooks: Hooks,
    /// Where and how GPU contents are stored.
    pub gpu_contents: GpuContents,
    /// Restores.
    pub restore: Restore,
    /// CRIU.
    pub criu: Criu,
    /// Directories.
    pub paths: Paths,
}

/// `[runtime]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runtime {
    /// runc or crun: a bare name, looked up in the system directories, or an absolute path.
    pub path: PathBuf,
    /// Its command line and state format; from the file name if not given.
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

/// `[criu]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criu {
    /// The distribution's CRIU plugins, which stay in use apart from the CUDA one.
    pub plugin_dir: Option<PathBuf>,
    /// Treatment of containers whose annotation gives CRIU a configuration file.
    pub configuration: CriuConfiguration,
}

/// Treatment of containers whose annotation `org.criu.config` gives CRIU a configuration file,
/// which may name programs that run as root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CriuConfiguration {
    /// Refuses to checkpoint or restore such a container.
    #[default]
    Refuse,
    /// Passes the file to CRIU.
    Allow,
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

    /// Loads the settings for verbs that have to work whatever is wrong with the file, such as
    /// ending a container: the settings, or the usable tables of the file with defaults for the
    /// others, and the error.
    #[must_use]
    pub fn load_usable(explicit: Option<&Path>) -> (Self, Option<SettingsError>) {
        match Self::load(explicit) {
            Ok(settings) => (settings, None),
            Err(error) => {
                // `file::read` refuses a file that others than root can write to here, too.
                let text = file::read(explicit.unwrap_or(Path::new(DEFAULT_PATH)));
                (
                    text.map_or_else(|_| Self::default(), |text| Self::usable(&text)),
                    Some(error),
                )
            }
        }
    }

    /// Whether a checkpoint may begin in spite of a blocker of this kind.
    pub fn allows(&self, kind: BlockerKind) -> bool {
        match kind {
            BlockerKind::ExecSession => self.preflight.exec == ExecSessions::Allow,
            BlockerKind::Persistence => self.restore.persistence == Persistence::Ignore,
            BlockerKind::MainThreadEnded => false,
            kind => self.preflight.allow.contains(&kind),
        }
    }

    fn usable(text: &str) -> Self {
        let (mut settings, mut usable) = (Self::default(), toml::Table::new());
        for (name, table) in text.parse::<toml::Table>().unwrap_or_default() {
            let mut more = usable.clone();
            more.insert(name, table);
            if let Ok(read) = more.clone().try_into::<Self>()
                && read.check().is_ok()
            {
                (settings, usable) = (read, more);
            }
        }
        settings
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

    /// Checks the rules that the types do not express; returns the wrong key and its rule.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let absolute = [
            ("driver.libcuda", self.driver.libcuda.as_deref()),
            ("driver.nvml", self.driver.nvml.as_deref()),
            ("gpu_contents.directory", self.gpu_contents.directory()),
            ("gpu_contents.plugin", Some(&self.gpu_contents.plugin)),
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
        self.restore.check()?;
        self.preflight.check()?;
        self.gpu_contents.check()?;
        self.hooks.check()?;
        self.deadlines.check()
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

impl Default for Criu {
    fn default() -> Self {
        let there = CRIU_PLUGIN_DIRS
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_dir());
        Self {
            plugin_dir: there,
            configuration: CriuConfiguration::default(),
        }
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

/// The fuzz target `settings`.
#[cfg(fuzzing)]
pub fn fuzz(text: &str) {
    let whole = Settings::parse(Path::new("fuzzed"), text);
    let usable = Settings::usable(text);
    if let Ok(whole) = whole {
        assert_eq!(whole, usable);
    }
}

#[cfg(test)]
mod tests;
