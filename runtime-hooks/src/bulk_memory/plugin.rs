//! Whether our CRIU plugin, which moves bulk memory, can be used for an operation.

use std::io;
use std::path::{Path, PathBuf};

use stasis_config::{BulkMemory, MemoryTier};
use stasis_linux::file_system::FileSystem;
use stasis_memory_store::PAGE;

use crate::bulk_memory::stores;
use crate::context::Context;
use crate::error::{Refusal, chain};
use crate::low_level::criu_plugins;
use crate::low_level::criu_version::CriuVersion;
use crate::low_level::post_dump;
use crate::preflight::capabilities::{Capabilities, Criu};
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
    UnknownVersion(String),
    /// The kernel's pages have another size.
    #[error("the kernel has pages of {0} bytes, and the plugin needs {PAGE}")]
    PageSize(usize),
    /// The kernel lacks what a dump needs.
    #[error("the kernel has no {0}")]
    Kernel(&'static str),
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

/// The plugin for a restore, which only fills memory, if it can be used on a machine with these
/// capabilities.
///
/// # Errors
/// [`PluginUnavailable`].
pub(crate) fn usable(
    settings: &BulkMemory,
    has: &Capabilities,
) -> Result<PathBuf, PluginUnavailable> {
    if !settings.enabled {
        return Err(PluginUnavailable::Off);
    }
    let Some(plugin) = &has.plugin else {
        return Err(PluginUnavailable::NoPlugin(settings.plugin.clone()));
    };
    match &has.criu {
        Criu::Version(version) if *version >= CriuVersion::WITH_HOOKS => {}
        Criu::Version(version) => return Err(PluginUnavailable::TooOld(*version)),
        Criu::Missing => return Err(PluginUnavailable::NoCriu),
        Criu::Unknown(why) => return Err(PluginUnavailable::UnknownVersion(why.clone())),
    }
    match has.kernel.page_size {
        PAGE => Ok(plugin.clone()),
        bytes => Err(PluginUnavailable::PageSize(bytes)),
    }
}

/// The plugin for a dump, which empties memory, if it can be used.
///
/// # Errors
/// [`PluginUnavailable`].
pub(crate) fn usable_for_dump(
    settings: &BulkMemory,
    has: &Capabilities,
) -> Result<PathBuf, PluginUnavailable> {
    let plugin = usable(settings, has)?;
    if !has.kernel.pagemap_scan {
        return Err(PluginUnavailable::Kernel("PAGEMAP_SCAN (Linux 6.7)"));
    }
    if !has.kernel.userfaultfd {
        return Err(PluginUnavailable::Kernel("userfaultfd"));
    }
    Ok(plugin)
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
    /// CRIU's configuration file for a checkpoint ([`post_dump`]).
    pub(crate) configuration: Option<PathBuf>,
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
        let has = Capabilities::probe(&context.settings);
        let found = match (options.memory, gpu) {
            (_, GpuState::None) if !settings.heaps => Err(PluginUnavailable::NoGpuContents),
            (MemoryTarget::Elsewhere, _) => Err(PluginUnavailable::Elsewhere),
            (MemoryTarget::IntoImage, _) => usable_for_dump(settings, &has),
        };
        let mut plugins = Self::prepare(found, context)?;
        let state_dir = &context.settings.paths.state_dir;
        plugins.configuration = post_dump::prepare(state_dir, has.criu.version())
            .map_err(below("the configuration for CRIU in", state_dir))?;
        if plugins.memory.is_ok() && settings.tier != MemoryTier::Portable {
            let opened = stores::prepare(&settings.directory)
                .and_then(|()| FileSystem::of(&settings.directory));
            let what = "the directory for bulk memory (bulk_memory.directory in the settings)";
            plugins.store = Some(opened.map_err(below(what, &settings.directory))?);
        }
        Ok(plugins)
    }

    /// Prepares the plugin directory for a restore.
    ///
    /// # Errors
    /// [`Refusal::Directory`].
    pub(crate) fn for_restore(context: &Context) -> Result<Self, Refusal> {
        let has = Capabilities::probe(&context.settings);
        Self::prepare(usable(&context.settings.bulk_memory, &has), context)
    }

    fn prepare(
        ours: Result<PathBuf, PluginUnavailable>,
        context: &Context,
    ) -> Result<Self, Refusal> {
        let state_dir = &context.settings.paths.state_dir;
        let distribution = context.settings.criu.plugin_dir.as_deref();
        let memory = ours.as_deref().ok();
        let directory = criu_plugins::prepare(state_dir, distribution, memory)
            .map_err(below("the plugin directory in", state_dir))?;
        Ok(Self {
            directory,
            configuration: None,
            memory: ours.map(|_| ()),
            store: None,
        })
    }
}

fn below(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Refusal {
    move |source| Refusal::Directory {
        what,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::preflight::capabilities::{Cgroups, Kernel};

    /// A machine that lacks nothing.
    pub(crate) fn capable() -> Capabilities {
        Capabilities {
            kernel: Kernel {
                release: "6.18.0".to_owned(),
                page_size: PAGE,
                pagemap_scan: true,
                userfaultfd: true,
            },
            cgroups: Cgroups::V2,
            criu: Criu::Version(CriuVersion::WITH_HOOKS),
            plugin: Some("/plugin.so".into()),
        }
    }

    #[test]
    fn without_any_of_its_needs_criu_moves_the_memory() {
        let settings = BulkMemory::default();
        assert!(usable_for_dump(&settings, &capable()).is_ok());
        type Lose = fn(&mut Capabilities);
        let cases: [(&str, Lose); 6] = [
            ("no plugin", |has| has.plugin = None),
            ("no criu", |has| has.criu = Criu::Missing),
            ("version: why", |has| {
                has.criu = Criu::Unknown("why".to_owned())
            }),
            ("65536 bytes", |has| has.kernel.page_size = 65536),
            ("PAGEMAP_SCAN", |has| has.kernel.pagemap_scan = false),
            ("userfaultfd", |has| has.kernel.userfaultfd = false),
        ];
        for (says, lose) in cases {
            let mut has = capable();
            lose(&mut has);
            let why = usable_for_dump(&settings, &has).unwrap_err();
            let note = why.note().unwrap();
            assert!(note.contains(says), "{note}");
        }
        // A restore only fills.
        let mut old = capable();
        old.kernel.pagemap_scan = false;
        assert!(usable(&settings, &old).is_ok());
    }
}
