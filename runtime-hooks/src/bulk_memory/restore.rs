//! The bulk memory of a restore: the request to our plugin, and what it made of it.

mod extent;
mod found;

use std::path::{Path, PathBuf};

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_memory_store::{
    Area, Arriving, CriuHas, Holes, Index, RestoreRequest, StoreError, Tier,
};

use crate::bulk_memory::in_use::InUse;
use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::plugin::PluginsForRestore;
use crate::bulk_memory::ram_tier;
use crate::bulk_memory::request::{self, RequestFiles};
use crate::bulk_memory::stores::Stores;
use crate::context::Context;
use crate::cuda::gpu_use::gpu_bytes;
use crate::error::Failure;
use crate::error::bulk_memory::WithoutMemory;
use crate::error::low_level::MemoryFailure;
use crate::gpu_path::hole::{Load, Loaded, Until};
use crate::host::cancel::Cancel;
use crate::host::huge_pages::HugePages;
use crate::image::manifest::Manifest;
use crate::low_level::criu_plugins::Environment;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;

use extent::Extent;
pub(crate) use found::FoundMemory;

/// The host memory that the bulk memory of an index takes where nothing of it is in memory, bytes.
pub(crate) fn host_bytes(index: &Index) -> u64 {
    Extent::of(index, None).host_bytes()
}

/// The bulk memory of a restore that is about to begin.
#[derive(Debug)]
pub(crate) struct MemoryRestore {
    request: RestoreRequest,
    files: RequestFiles,
    extent: Extent,
    /// The image.
    image: PathBuf,
    /// Processes that have holes, by their pids in the container.
    holes: Vec<i32>,
    /// What is there of their contents before CRIU begins.
    until: Until,
    /// Nobody removes it before the restore is over.
    _in_use: Option<InUse>,
}

impl MemoryRestore {
    /// Prepares the restore of what was found of an image, and makes room for it. `directory` is
    /// the operation's.
    pub(crate) fn of(
        settings: &Settings,
        image: &Path,
        found: FoundMemory,
        directory: &Path,
    ) -> Self {
        let FoundMemory {
            index,
            extent,
            store,
        } = found;
        let (packs, in_use) = store.unzip();
        if let Some(packs) = &packs {
            // Only `stasis memory prune` could miss it.
            let _ = Origin::was_restored_from(packs, image);
        }
        // Its own memory is in use.
        ram_tier::evict_for_host(&Stores::of(settings), extent.host_bytes());
        let files = RequestFiles::of(directory);
        Self {
            extent,
            image: image.to_owned(),
            holes: holes_of(&index),
            until: until(settings, index.tier, &files),
            request: RestoreRequest {
                image_id: Some(index.image_id),
                directory: packs,
                threads: request::threads(settings, index.tier),
                holes: Holes::Engine,
                freeze: None,
                progress: Some(files.progress.clone()),
                report: Some(files.report.clone()),
            },
            files,
            _in_use: in_use,
        }
    }

    /// The host memory that it takes, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.extent.host_bytes()
    }

    /// Whether the GPU contents of all processes go into files of ours.
    pub(crate) fn has_gpu_contents_of(&self, manifest: &Manifest) -> bool {
        let mut processes = manifest.processes.iter();
        processes.all(|process| gpu_bytes([process]) == 0 || self.holes.contains(&process.pid))
    }

    /// Waits for the rest of an image that arrives, if some of it is used where nothing can be
    /// taken back: tasks may run as soon as CRIU has restored them, and so the plugin fills in
    /// nothing that is not known to be whole.
    ///
    /// # Errors
    /// [`Failure::Store`], [`Failure::Cancelled`].
    pub(crate) fn until_arrived(
        &self,
        cancel: &Cancel,
        timeline: &mut Timeline<'_>,
    ) -> Result<(), Failure> {
        let is_filled_first = self.extent.areas > 0 || matches!(self.until, Until::Loaded(_));
        let arriving = match is_filled_first {
            true => Arriving::find(&self.image)?,
            false => None,
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

    /// Loads GPU contents that go into files of ours, if there are any.
    ///
    /// # Errors
    /// [`Failure::GpuContents`], [`Failure::Cancelled`].
    pub(crate) fn load(
        &self,
        cancel: &Cancel,
        timeline: &mut Timeline<'_>,
    ) -> Result<Option<Loaded>, Failure> {
        if self.holes.is_empty() {
            return Ok(None);
        }
        let load = Load {
            image: self.image.clone(),
            store: self.request.directory.clone(),
            threads: self.request.threads,
            until: self.until.clone(),
        };
        let bytes = self.extent.file_bytes;
        let estimate = ProgressEstimate::said(&self.files.progress);
        let loaded = timeline.time_moving("load", estimate, || Loaded::load(load, bytes, cancel));
        Ok(loaded.map(Some)?)
    }

    /// Writes the request to the plugin, which freezes this cgroup at last.
    ///
    /// # Errors
    /// [`Failure::Operation`].
    pub(crate) fn request(&self, freeze: Option<&Path>) -> Result<(), Failure> {
        let request = RestoreRequest {
            freeze: freeze.map(Path::to_owned),
            ..self.request.clone()
        };
        Ok(self.files.write(&request)?)
    }

    /// The file where the plugin writes its progress.
    pub(crate) fn progress(&self) -> &Path {
        &self.files.progress
    }

    /// Huge pages for the areas to fill, unless these are sparse.
    pub(crate) fn huge_pages(&self, context: &Context) -> Option<HugePages> {
        let fills = self.extent.is_dense();
        fills
            .then(|| HugePages::if_wanted(&context.settings))
            .flatten()
    }

    /// After a restore that CRIU reports as successful: checks the plugin's report.
    ///
    /// # Errors
    /// [`WithoutMemory`] if the plugin did not fill all areas.
    pub(crate) fn succeeded(&self, timeline: &mut Timeline<'_>) -> Result<(), WithoutMemory> {
        let mut report = self.files.report().unwrap_or_default();
        let is_whole = report.areas == self.extent.areas && report.error.is_none();
        // What goes into files was loaded before CRIU.
        report.bytes += self.extent.file_bytes;
        request::record_report(timeline, "criu restore", "refill", report);
        if is_whole { Ok(()) } else { Err(WithoutMemory) }
    }

    /// After a failed restore: the plugin's error, if the plugin failed.
    pub(crate) fn failed(&self) -> MemoryFailure {
        let report = self.files.report();
        MemoryFailure {
            moved: report.as_ref().map(|report| report.bytes),
            error: report.and_then(|report| report.error),
            not_returned: None,
        }
    }
}

/// Loading from memory takes no longer than all else does, and a driver that copies alone waits for
/// all contents.
fn until(settings: &Settings, tier: Tier, files: &RequestFiles) -> Until {
    match (settings.gpu_checkpoint.path, tier) {
        (GpuCheckpointPath::Driver, _) | (_, Tier::Ram) => {
            Until::Loaded(Some(files.progress.clone()))
        }
        (GpuCheckpointPath::Auto, Tier::Disk | Tier::Portable) => Until::Begun,
    }
}

fn holes_of(index: &Index) -> Vec<i32> {
    let is_hole = |area: &Area| area.criu_has == CriuHas::Hole;
    let processes = index.processes.iter();
    let with_holes = processes.filter(|process| process.areas.iter().any(is_hole));
    with_holes.map(|process| process.pid).collect()
}

/// The environment that passes the plugin directory and the request to CRIU at a restore: that of
/// the memory, or `other` if there is none.
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
    }
}
