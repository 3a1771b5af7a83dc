//! Whether our CRIU plugin, which moves bulk memory, can be used for an operation.

use std::io;
use std::path::PathBuf;

use stasis_config::MemoryTier;

use crate::criu_plugins;
use crate::criu_version::CriuVersion;
use crate::engine::Engine;
use crate::error::{Refusal, chain};
use crate::invocation::{CheckpointOptions, MemoryGoes};
use crate::memory_stores;

/// Why CRIU moves all memory itself.
#[derive(Debug, thiserror::Error)]
pub enum LeftToCriu {
    /// The administrator does not want it.
    #[error("bulk_memory.enabled is false in the settings")]
    Off,
    /// Memory goes somewhere else than into the image, or is there already.
    #[error(
        "memory does not all go into this image (--pre-dump, --parent-path, --lazy-pages or --page-server)"
    )]
    Elsewhere,
    /// It is not installed.
    #[error(
        "there is no plugin {0} (bulk_memory.plugin in the settings; `make install` puts it there)"
    )]
    NoPlugin(PathBuf),
    /// There is no CRIU in `PATH`.
    #[error("no criu is in PATH")]
    NoCriu,
    /// CRIU does not say its version.
    #[error("CRIU does not say its version: {0}")]
    UnknownVersion(#[source] io::Error),
    /// CRIU has not all the hooks that it needs.
    #[error("CRIU {0} is too old for the plugin, which needs {needed} or newer", needed = CriuVersion::WITH_HOOKS)]
    TooOld(CriuVersion),
}

impl LeftToCriu {
    /// What is worth a note in the log: nothing, if it is as somebody wanted it.
    pub(crate) fn note(&self) -> Option<String> {
        match self {
            Self::Off => None,
            why => Some(format!("memory is left to CRIU alone: {}", chain(why))),
        }
    }
}

/// The plugin, if it can be used.
///
/// # Errors
/// Why not.
fn find(engine: &Engine) -> Result<PathBuf, LeftToCriu> {
    let settings = &engine.settings.bulk_memory;
    if !settings.enabled {
        return Err(LeftToCriu::Off);
    }
    if !settings.plugin.is_file() {
        return Err(LeftToCriu::NoPlugin(settings.plugin.clone()));
    }
    match CriuVersion::here(&engine.settings.paths.state_dir) {
        Ok(Some(version)) if version >= CriuVersion::WITH_HOOKS => Ok(settings.plugin.clone()),
        Ok(Some(version)) => Err(LeftToCriu::TooOld(version)),
        Ok(None) => Err(LeftToCriu::NoCriu),
        Err(error) => Err(LeftToCriu::UnknownVersion(error)),
    }
}

/// CRIU's plugin directory for one operation, and whether our plugin is in it.
#[derive(Debug)]
pub struct Plugins {
    pub(crate) directory: PathBuf,
    pub(crate) memory: Result<(), LeftToCriu>,
}

impl Plugins {
    /// Makes it for a checkpoint, and the directory of the tier.
    ///
    /// # Errors
    /// [`Refusal::Directory`].
    pub(crate) fn for_checkpoint(
        engine: &Engine,
        options: &CheckpointOptions,
    ) -> Result<Self, Refusal> {
        let plugins = Self::prepare(
            match options.memory {
                MemoryGoes::IntoImage => find(engine),
                MemoryGoes::Elsewhere => Err(LeftToCriu::Elsewhere),
            },
            engine,
        )?;
        let settings = &engine.settings.bulk_memory;
        if plugins.memory.is_ok() && settings.tier != MemoryTier::Portable {
            memory_stores::prepare(&settings.directory).map_err(|source| Refusal::Directory {
                what: "the directory for bulk memory (bulk_memory.directory in the settings)",
                path: settings.directory.clone(),
                source,
            })?;
        }
        Ok(plugins)
    }

    /// Makes it for a restore.
    ///
    /// # Errors
    /// [`Refusal::Directory`].
    pub(crate) fn for_restore(engine: &Engine) -> Result<Self, Refusal> {
        Self::prepare(find(engine), engine)
    }

    fn prepare(ours: Result<PathBuf, LeftToCriu>, engine: &Engine) -> Result<Self, Refusal> {
        let state_dir = &engine.settings.paths.state_dir;
        let distribution = engine.settings.criu.plugin_dir.as_deref();
        let memory = ours.as_deref().ok();
        let directory =
            criu_plugins::prepare(state_dir, distribution, memory).map_err(|source| {
                Refusal::Directory {
                    what: "the plugin directory in",
                    path: state_dir.clone(),
                    source,
                }
            })?;
        let memory = ours.map(|_| ());
        Ok(Self { directory, memory })
    }
}
