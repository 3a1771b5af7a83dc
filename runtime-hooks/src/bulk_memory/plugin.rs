//! Whether our CRIU plugin, which moves bulk memory, can be used for an operation.

use std::io;
use std::path::PathBuf;

use stasis_config::MemoryTier;
use stasis_linux::file_system::FileSystem;

use crate::bulk_memory::stores;
use crate::context::Context;
use crate::error::{Refusal, chain};
use crate::low_level::criu_plugins;
use crate::low_level::criu_version::CriuVersion;
use crate::request::{CheckpointRequest, MemoryTarget};

/// Why CRIU moves all memory itself.
#[derive(Debug, thiserror::Error)]
pub enum PluginUnavailable {
    /// The settings switch bulk memory off.
    #[error("bulk_memory.enabled is false in the settings")]
    Off,
    /// There is nothing that the settings let the plugin move.
    #[error("there are no GPU contents, and bulk_memory.heaps is false in the settings")]
    NoGpuContents,
    /// Memory goes elsewhere than into this image, or is in an earlier image.
    #[error(
        "memory does not all go into this image (--pre-dump, --parent-path, --lazy-pages or \
         --page-server)"
    )]
    Elsewhere,
    /// The plugin is not installed.
    #[error(
        "there is no plugin {0} (bulk_memory.plugin in the settings; `make install` puts it there)"
    )]
    NoPlugin(PathBuf),
    /// There is no CRIU in `PATH`.
    #[error("no criu is in PATH")]
    NoCriu,
    /// CRIU's version cannot be read.
    #[error("CRIU does not report its version: {0}")]
    UnknownVersion(#[source] io::Error),
    /// CRIU lacks a hook that the plugin needs.
    #[error(
        "CRIU {0} is too old for the plugin, which needs {needed} or newer",
        needed = CriuVersion::WITH_HOOKS
    )]
    TooOld(CriuVersion),
}

impl PluginUnavailable {
    /// The note for the log; `None` if the settings or the caller asked for it.
    pub(crate) fn note(&self) -> Option<String> {
        match self {
            Self::Off | Self::NoGpuContents => None,
            why => Some(format!("CRIU alone moves the memory: {}", chain(why))),
        }
    }
}

/// Finds the plugin, if it can be used.
///
/// # Errors
/// [`PluginUnavailable`].
fn find(context: &Context) -> Result<PathBuf, PluginUnavailable> {
    let settings = &context.settings.bulk_memory;
    if !settings.enabled {
        return Err(PluginUnavailable::Off);
    }
    if !settings.plugin.is_file() {
        return Err(PluginUnavailable::NoPlugin(settings.plugin.clone()));
    }
    match CriuVersion::installed(&context.settings.paths.state_dir) {
        Ok(Some(version)) if version >= CriuVersion::WITH_HOOKS => Ok(settings.plugin.clone()),
        Ok(Some(version)) => Err(PluginUnavailable::TooOld(version)),
        Ok(None) => Err(PluginUnavailable::NoCriu),
        Err(error) => Err(PluginUnavailable::UnknownVersion(error)),
    }
}

/// Whether the processes of a checkpoint have GPU state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuState {
    /// In host memory, when CRIU dumps them.
    InMemory,
    /// No process uses CUDA.
    None,
}

/// CRIU's plugin directory for one operation, and whether our plugin is in it.
#[derive(Debug)]
pub struct Plugins {
    pub(crate) directory: PathBuf,
    pub(crate) memory: Result<(), PluginUnavailable>,
    /// The file system of the tier "disk", at a checkpoint that may use it. Opened before anything
    /// is written to it ([`FileSystem::sync`]).
    pub(crate) store: Option<FileSystem>,
}

impl Plugins {
    /// Prepares the plugin directory and the tier's directory for a checkpoint.
    ///
    /// # Errors
    /// [`Refusal::Directory`].
    pub(crate) fn for_checkpoint(
        context: &Context,
        options: &CheckpointRequest,
        gpu: GpuState,
    ) -> Result<Self, Refusal> {
        let settings = &context.settings.bulk_memory;
        let found = match (options.memory, gpu) {
            (_, GpuState::None) if !settings.heaps => Err(PluginUnavailable::NoGpuContents),
            (MemoryTarget::Elsewhere, _) => Err(PluginUnavailable::Elsewhere),
            (MemoryTarget::IntoImage, _) => find(context),
        };
        let mut plugins = Self::prepare(found, context)?;
        if plugins.memory.is_ok() && settings.tier != MemoryTier::Portable {
            let opened = stores::prepare(&settings.directory)
                .and_then(|()| FileSystem::of(&settings.directory));
            let opened = opened.map_err(|source| Refusal::Directory {
                what: "the directory for bulk memory (bulk_memory.directory in the settings)",
                path: settings.directory.clone(),
                source,
            })?;
            plugins.store = Some(opened);
        }
        Ok(plugins)
    }

    /// Prepares the plugin directory for a restore.
    ///
    /// # Errors
    /// [`Refusal::Directory`].
    pub(crate) fn for_restore(context: &Context) -> Result<Self, Refusal> {
        Self::prepare(find(context), context)
    }

    fn prepare(
        ours: Result<PathBuf, PluginUnavailable>,
        context: &Context,
    ) -> Result<Self, Refusal> {
        let state_dir = &context.settings.paths.state_dir;
        let distribution = context.settings.criu.plugin_dir.as_deref();
        let memory = ours.as_deref().ok();
        let directory =
            criu_plugins::prepare(state_dir, distribution, memory).map_err(|source| {
                Refusal::Directory {
                    what: "the plugin directory in",
                    path: state_dir.clone(),
                    source,
                }
            })?;
        Ok(Self {
            directory,
            memory: ours.map(|_| ()),
            store: None,
        })
    }
}
