//! The bulk memory of a restore: GPU contents that are loaded into files of ours, and the request
//! to our plugin, which leaves their holes to us.

mod extent;
mod found;

use std::path::{Path, PathBuf};

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_gpu::cuda::gpu_use::gpu_bytes;
use stasis_gpu::gpu_path::detached::{Load, Loaded, Until};
use stasis_host::cancel::Cancel;
use stasis_memory_store::{
    Arriving, Holes, ImageId, Index, RestoreRequest, StoreError, StoreStatistics,
};

use crate::bulk_memory::in_use::InUse;
use crate::bulk_memory::places;
use crate::bulk_memory::plugin::PluginsForRestore;
use crate::bulk_memory::request::{self, RequestFiles};
use crate::error::Failure;
use crate::error::bulk_memory::BulkMemoryError;
use crate::image::manifest::Manifest;
use crate::low_level::criu_plugins::Environment;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;
use extent::Extent;
pub use found::FoundMemory;

/// The host memory that the bulk memory of an index takes where nothing of it is in memory, bytes.
pub(crate) fn host_bytes(index: &Index) -> u64 {
    Extent::of(index, None).new_bytes
}

/// The bulk memory of a restore that is about to begin.
#[derive(Debug)]
pub(crate) struct MemoryRestore {
    files: RequestFiles,
    extent: Extent,
    /// The image.
    image: PathBuf,
    image_id: ImageId,
    /// The directory of the packs, unless they are in the image.
    packs: Option<PathBuf>,
    threads: usize,
    /// Processes that have holes, by their pids in the container.
    holes: Vec<i32>,
    /// How much of their contents is loaded before CRIU begins.
    until: Until,
    /// Keeps the store until the restore is over.
    _in_use: Option<InUse>,
}

impl MemoryRestore {
    /// Finds an image's bulk memory and prepares its restore; `None` if CRIU's images hold all
    /// memory. `directory` is the operation's.
    pub(crate) fn find(
        settings: &Settings,
        image: &Path,
        manifest: &Manifest,
        plugins: &PluginsForRestore,
        directory: &Path,
    ) -> Result<Option<Self>, BulkMemoryError> {
        let plugin = plugins.ours.as_ref().copied();
        let Some(found) = FoundMemory::find(settings, image, manifest, plugin)? else {
            return Ok(None);
        };
        let (packs, in_use) = found.store.unzip();
        let files = RequestFiles::of(directory);
        let processes = found.index.processes.iter();
        Ok(Some(Self {
            extent: found.extent,
            image: image.to_owned(),
            image_id: found.index.image_id,
            threads: request::threads(settings, packs.as_deref()),
            holes: processes.map(|process| process.pid).collect(),
            until: until(settings, packs.as_deref(), &files),
            packs,
            files,
            _in_use: in_use,
        }))
    }

    /// The host memory that the restore takes, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.extent.new_bytes
    }

    /// Returns whether the GPU contents of all processes go into files of ours.
    pub(crate) fn has_gpu_contents_of(&self, manifest: &Manifest) -> bool {
        let mut processes = manifest.processes.iter();
        processes.all(|process| gpu_bytes([process]) == 0 || self.holes.contains(&process.pid))
    }

    /// Waits for the rest of an image that is still arriving, if contents are used where that
    /// cannot be undone: only contents that are known to be whole are loaded before CRIU begins.
    pub(crate) fn until_arrived(
        &self,
        cancel: &Cancel,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        let arriving = match self.until {
            Until::Loaded(_) => Arriving::find(&self.image)?,
            Until::Begun => None,
        };
        let Some(arriving) = arriving else {
            return Ok(());
        };
        let waited = timeline.time("arrive", || arriving.until_whole(|| cancel.requested()));
        match waited {
            Err(StoreError::Arriving { .. }) => Err(Failure::Cancelled),
            waited => Ok(waited?),
        }
    }

    /// Loads GPU contents into files of ours, or begins to.
    pub(crate) fn load(
        &self,
        cancel: &Cancel,
        timeline: &mut Timeline<'_>,
    ) -> Result<Loaded, Failure> {
        let load = Load {
            image: self.image.clone(),
            image_id: self.image_id,
            store: self.packs.clone(),
            threads: self.threads,
            until: self.until.clone(),
        };
        let bytes = self.extent.file_bytes;
        let estimate = ProgressEstimate::said(&self.files.progress);
        let loaded = timeline.time_moving("load", estimate, || Loaded::load(load, bytes, cancel));
        Ok(loaded?)
    }

    /// Writes the request to the plugin, which freezes the cgroup `freeze` at the end.
    pub(crate) fn request(&self, freeze: Option<&Path>) -> Result<(), Failure> {
        let request = RestoreRequest {
            holes: Holes::Engine,
            image_id: Some(self.image_id),
            freeze: freeze.map(Path::to_owned),
        };
        Ok(self.files.write(&request)?)
    }

    /// Adds the figures to the log, once CRIU is done.
    pub(crate) fn tell(&self, timeline: &mut Timeline<'_>) {
        timeline.bulk_memory = Some(StoreStatistics {
            processes: self.holes.len(),
            areas: self.extent.areas,
            bytes: self.extent.file_bytes,
            ..StoreStatistics::default()
        });
    }
}

/// Loading from memory takes no longer than the rest of the restore, so it is completed first. A
/// driver that copies alone needs all contents.
fn until(settings: &Settings, packs: Option<&Path>, files: &RequestFiles) -> Until {
    match settings.gpu_checkpoint.path {
        GpuCheckpointPath::Auto if !packs.is_some_and(places::in_memory) => Until::Begun,
        GpuCheckpointPath::Auto | GpuCheckpointPath::Driver => {
            Until::Loaded(Some(files.progress.clone()))
        }
    }
}

/// The environment that passes the plugin directory and the request to CRIU at a restore: the
/// request for `memory`, or `other` without one.
pub(crate) fn environment<'a>(
    plugins: &'a PluginsForRestore,
    memory: Option<&'a MemoryRestore>,
    other: Option<&'a Path>,
) -> Environment<'a> {
    let request = memory.map(|memory| memory.files.request.as_path());
    Environment {
        plugins: &plugins.directory,
        memory_request: request.or(other),
        configuration: None,
        not_dumped: &[],
        mounted: &[],
    }
}
