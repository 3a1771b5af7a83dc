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

/// What the plugin is of use for in a dump.
#[derive(Debug)]
pub(crate) enum DumpUse {
    /// It moves memory of processes.
    Memory,
    /// It sees to it that images with holes are not restored without it, for GPU contents in files
    /// of ours. CRIU moves what is memory of processes, for this reason.
    Files(PluginUnavailable),
    /// CRIU moves all memory.
    Nothing(PluginUnavailable),
}

impl DumpUse {
    /// Whether it can be loaded, and can empty memory.
    pub(crate) fn of(settings: &BulkMemory, has: &Capabilities) -> Self {
        match usable(settings, has) {
            Err(why) => Self::Nothing(why),
            Ok(_) if !has.kernel.pagemap_scan => {
                Self::Files(PluginUnavailable::Kernel("PAGEMAP_SCAN (Linux 6.7)"))
            }
            Ok(_) if !has.kernel.userfaultfd => {
                Self::Files(PluginUnavailable::Kernel("userfaultfd"))
            }
            Ok(_) => Self::Memory,
        }
    }

    /// Whether GPU contents in files can be stored.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn for_files(&self) -> Result<(), &PluginUnavailable> {
        match self {
            Self::Memory | Self::Files(_) => Ok(()),
            Self::Nothing(why) => Err(why),
        }
    }

    /// Whether it moves memory of processes.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn for_memory(&self) -> Result<(), &PluginUnavailable> {
        match self {
            Self::Memory => Ok(()),
            Self::Files(why) | Self::Nothing(why) => Err(why),
        }
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

/// CRIU's plugin directory for a checkpoint, and what our plugin in it is of use for.
#[derive(Debug)]
pub struct Plugins {
    pub(crate) directory: PathBuf,
    /// CRIU's configuration file ([`post_dump`]).
    pub(crate) configuration: Option<PathBuf>,
    pub(crate) ours: DumpUse,
    /// The file system of the tier "disk", where it may be used. Opened before anything
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
        let ours = match (options.memory, gpu) {
            (_, GpuState::None) if !settings.heaps => {
                DumpUse::Nothing(PluginUnavailable::NoGpuContents)
            }
            (MemoryTarget::Elsewhere, _) => DumpUse::Nothing(PluginUnavailable::Elsewhere),
            (MemoryTarget::IntoImage, _) => DumpUse::of(settings, &has),
        };
        let plugin = ours.for_files().is_ok().then_some(has.plugin.as_deref());
        let directory = prepare(plugin.flatten(), context)?;
        let state_dir = &context.settings.paths.state_dir;
        let configuration = post_dump::prepare(state_dir, has.criu.version(), options.after)
            .map_err(below("the configuration for CRIU in", state_dir))?;
        let mut store = None;
        if ours.for_files().is_ok() && settings.tier != MemoryTier::Portable {
            let opened = stores::prepare(&settings.directory)
                .and_then(|()| FileSystem::of(&settings.directory));
            let what = "the directory for bulk memory (bulk_memory.directory in the settings)";
            store = Some(opened.map_err(below(what, &settings.directory))?);
        }
        Ok(Self {
            directory,
            configuration,
            ours,
            store,
        })
    }
}

/// CRIU's plugin directory for a restore, and whether our plugin is in it.
#[derive(Debug)]
pub(crate) struct PluginsForRestore {
    pub(crate) directory: PathBuf,
    pub(crate) ours: Result<(), PluginUnavailable>,
}

impl PluginsForRestore {
    /// Prepares the plugin directory.
    ///
    /// # Errors
    /// [`Refusal::Directory`].
    pub(crate) fn prepare(context: &Context) -> Result<Self, Refusal> {
        let has = Capabilities::probe(&context.settings);
        let ours = usable(&context.settings.bulk_memory, &has);
        Ok(Self {
            directory: prepare(ours.as_deref().ok(), context)?,
            ours: ours.map(drop),
        })
    }
}

fn prepare(ours: Option<&Path>, context: &Context) -> Result<PathBuf, Refusal> {
    let state_dir = &context.settings.paths.state_dir;
    let distribution = context.settings.criu.plugin_dir.as_deref();
    criu_plugins::prepare(state_dir, distribution, ours)
        .map_err(below("the plugin directory in", state_dir))
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
        let all = DumpUse::of(&settings, &capable());
        assert!(all.for_memory().is_ok() && all.for_files().is_ok());
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
            let left = DumpUse::of(&settings, &has);
            let note = left.for_memory().unwrap_err().note().unwrap();
            assert!(note.contains(says), "{note}");
            // Files need nothing of the kernel, and a restore only fills.
            let of_kernel = ["PAGEMAP_SCAN", "userfaultfd"].contains(&says);
            assert_eq!(left.for_files().is_ok(), of_kernel, "{says}");
            assert_eq!(usable(&settings, &has).is_ok(), of_kernel, "{says}");
        }
    }
}
