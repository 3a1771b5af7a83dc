//! Whether our CRIU plugin, which guards images with holes, can be used for an operation.

use std::io;
use std::path::{Path, PathBuf};

use stasis_config::GpuContents;
use stasis_linux::file_system::FileSystem;
use stasis_memory_store::PAGE;

use crate::bulk_memory::places;
use crate::context::Context;
use crate::error::Refusal;
use crate::low_level::criu_plugins;
use crate::low_level::post_dump;
use crate::preflight::capabilities::{Capabilities, Criu, UnusableCriu};
use crate::request::{CheckpointRequest, MemoryTarget};

/// Why an image cannot have holes, and CRIU moves all memory itself.
#[derive(Debug, thiserror::Error)]
pub enum PluginUnavailable {
    /// There is nothing for it to guard.
    #[error("there are no GPU contents")]
    NoGpuContents,
    /// Memory goes elsewhere than into this image, or is in an earlier image.
    #[error(
        "memory does not all go into this image (--pre-dump, --parent-path, --lazy-pages or \
         --page-server)"
    )]
    Elsewhere,
    /// The plugin is not installed.
    #[error(
        "there is no plugin {0} (gpu_contents.plugin in the settings; `make install` puts it there)"
    )]
    NoPlugin(PathBuf),
    /// CRIU cannot be used, or lacks a hook that the plugin needs.
    #[error(transparent)]
    Criu(#[from] UnusableCriu),
    /// The kernel's pages have another size.
    #[error("the kernel has pages of {0} bytes, and the plugin needs {PAGE}")]
    PageSize(usize),
}

/// The plugin, if it can be used on a machine with these capabilities.
pub fn usable(settings: &GpuContents, has: &Capabilities) -> Result<PathBuf, PluginUnavailable> {
    let Some(plugin) = &has.plugin else {
        return Err(PluginUnavailable::NoPlugin(settings.plugin.clone()));
    };
    has.criu.usable()?;
    match has.kernel.page_size {
        PAGE => Ok(plugin.clone()),
        bytes => Err(PluginUnavailable::PageSize(bytes)),
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

/// CRIU's plugin directory for a checkpoint, and whether our plugin is in it.
#[derive(Debug)]
pub struct Plugins {
    pub(crate) directory: PathBuf,
    /// CRIU's configuration file ([`post_dump`]).
    pub(crate) configuration: Option<PathBuf>,
    pub(crate) ours: Result<(), PluginUnavailable>,
    /// The file system of contents apart from images. Opened before anything is written to it
    /// ([`FileSystem::sync`]).
    pub(crate) store: Option<FileSystem>,
}

impl Plugins {
    /// Prepares the plugin directory and the one for contents for a checkpoint.
    pub(crate) fn for_checkpoint(
        context: &Context,
        options: &CheckpointRequest,
        gpu: GpuState,
    ) -> Result<Self, Refusal> {
        let settings = &context.settings.gpu_contents;
        let has = Capabilities::probe(&context.settings);
        // The low-level runtime reports a missing CRIU where it alone would have been called.
        if (gpu, &has.criu) != (GpuState::None, &Criu::Missing) {
            has.criu.usable()?;
        }
        let ours = match (options.memory, gpu) {
            (_, GpuState::None) => Err(PluginUnavailable::NoGpuContents),
            (MemoryTarget::Elsewhere, _) => Err(PluginUnavailable::Elsewhere),
            (MemoryTarget::IntoImage, _) => usable(settings, &has),
        };
        let directory = prepare(ours.as_deref().ok(), context)?;
        let state_dir = &context.settings.paths.state_dir;
        let configuration = post_dump::prepare(state_dir, options.after)
            .map_err(below("the configuration for CRIU in", state_dir))?;
        let mut store = None;
        if let (Ok(_), Some(apart)) = (&ours, settings.directory()) {
            let opened = places::prepare(apart).and_then(|_| FileSystem::of(apart));
            let what = "the directory for GPU contents (gpu_contents.directory in the settings)";
            store = Some(opened.map_err(below(what, apart))?);
        }
        Ok(Self {
            directory,
            configuration,
            ours: ours.map(drop),
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
    pub(crate) fn prepare(context: &Context) -> Result<Self, Refusal> {
        let has = Capabilities::probe(&context.settings);
        has.criu.usable()?;
        let ours = usable(&context.settings.gpu_contents, &has);
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
mod tests {
    use super::*;
    use crate::bulk_memory::places::tests::fixtures::capable;

    #[test]
    fn without_any_of_its_needs_criu_moves_the_memory() {
        let settings = GpuContents::default();
        assert!(usable(&settings, &capable()).is_ok());
        type Lose = fn(&mut Capabilities);
        let cases: [(&str, Lose); 4] = [
            ("no plugin", |has| has.plugin = None),
            ("criu is not installed", |has| has.criu = Criu::Missing),
            ("version: why", |has| {
                has.criu = Criu::Unknown("why".to_owned())
            }),
            ("65536 bytes", |has| has.kernel.page_size = 65536),
        ];
        for (says, lose) in cases {
            let mut has = capable();
            lose(&mut has);
            let why = usable(&settings, &has).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
    }
}
