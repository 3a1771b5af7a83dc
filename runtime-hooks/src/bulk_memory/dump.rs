//! The bulk memory of a checkpoint: requested from our CRIU plugin before the dump, and checked
//! after it.

pub(crate) mod away;
mod keep;
mod requests;
mod staged;

use std::cell::OnceCell;
use std::path::Path;

use stasis_linux::file_system::FileSystem;
use stasis_memory_store::{
    After, CudaPids, DumpRequest, GpuContents, INDEX_FILE, Take, Tier, TreeMismatch,
};

use crate::bulk_memory::dump::away::Away;
use crate::bulk_memory::dump::requests::requests;
use crate::bulk_memory::dump::staged::InTier;
use crate::bulk_memory::in_use::InUse;
use crate::bulk_memory::plugin::Plugins;
use crate::bulk_memory::ram_tier::{GpuContentsIn, Stored};
use crate::bulk_memory::request::{self, RequestFiles};
use crate::container::Container;
use crate::context::Context;
use crate::error::Failure;
use crate::error::low_level::MemoryFailure;
use crate::gpu_path::hole::Holder;
use crate::host::boot::boot_id;
use crate::host::huge_pages::HugePages;
use crate::image::directory::NewImage;
use crate::image::manifest::StoredMemory;
use crate::low_level::criu_plugins::Environment;
use crate::operation::Operation;
use crate::operation::timeline::Timeline;
use crate::request::CheckpointRequest;

/// The bulk memory of one dump.
#[derive(Debug)]
pub(crate) struct MemoryDump<'a> {
    context: &'a Context,
    options: &'a CheckpointRequest,
    image: &'a NewImage,
    plugins: &'a Plugins,
    requested: Option<(DumpRequest, RequestFiles)>,
    /// How GPU contents are stored once their processes go on, if they are in memory until then.
    in_tier: Option<InTier>,
    /// Where GPU contents are to be while their processes are dumped.
    gpu_contents: GpuContentsIn,
    /// Who stores GPU contents while the driver is at work; nobody stores once this is dropped.
    storing: Option<Holder>,
    /// GPU contents that are stored already.
    away: Option<Away>,
    /// The operation's.
    directory: &'a Path,
    /// Its store, before the image is where the origin says.
    in_use: OnceCell<InUse>,
}

impl<'a> MemoryDump<'a> {
    /// Prepares the request to the plugin. Removes packs that belong to no image from the new
    /// image's directory.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) fn prepare(
        context: &'a Context,
        options: &'a CheckpointRequest,
        image: &'a NewImage,
        plugins: &'a Plugins,
        operation: &'a Operation,
        stored: Stored<'_>,
        timeline: &mut Timeline<'_>,
    ) -> Result<Self, Failure> {
        stasis_memory_store::discard(image.path(), None)?;
        let ours = match stored.gpu.are_in_files() {
            true => plugins.ours.for_files(),
            false => plugins.ours.for_memory(),
        };
        let (requested, in_tier) = match ours {
            Ok(()) => {
                let (requested, in_tier) = requests(context, options, operation, stored, timeline)?;
                (Some(requested), in_tier)
            }
            Err(why) => {
                if let Some(note) = why.note() {
                    timeline.note(note);
                }
                (None, None)
            }
        };
        Ok(Self {
            context,
            options,
            image,
            plugins,
            requested,
            in_tier,
            gpu_contents: stored.gpu,
            storing: None,
            away: None,
            directory: operation.directory(),
            in_use: OnceCell::new(),
        })
    }

    /// The file system that has the image's memory, if it is not in the image. Copies that a later
    /// process makes of the tier "ram" are that one's to bring to disk.
    pub(crate) fn store(&self) -> Option<&FileSystem> {
        let (request, _) = self.requested.as_ref()?;
        (request.tier == Tier::Disk).then_some(self.plugins.store.as_ref()?)
    }

    /// Writes the request to the plugin, with the container's CUDA processes and where their GPU
    /// contents are.
    ///
    /// # Errors
    /// [`Failure::Operation`].
    pub(crate) fn request(&self, cuda: CudaPids, contents: &[GpuContents]) -> Result<(), Failure> {
        if let Some((request, files)) = &self.requested {
            let take = match &request.take {
                Take::Heaps => Take::Heaps,
                Take::Nothing => Take::Nothing,
                Take::GpuContents(_) => Take::GpuContents(contents.to_vec()),
            };
            let request = DumpRequest {
                cuda,
                take,
                ..request.clone()
            };
            files.write(&request)?;
        }
        Ok(())
    }

    /// The environment that passes the plugin directory and the request to CRIU.
    pub(crate) fn environment(&self) -> Environment<'_> {
        Environment {
            plugins: &self.plugins.directory,
            memory_request: self
                .requested
                .as_ref()
                .map(|(_, files)| files.request.as_path()),
            configuration: self.plugins.configuration.as_deref(),
            not_dumped: &[],
        }
    }

    /// The file where the plugin writes its progress.
    pub(crate) fn progress(&self) -> Option<&Path> {
        self.requested
            .as_ref()
            .map(|(_, files)| files.progress.as_path())
    }

    /// The manifest's entry, if the plugin carries the request out.
    pub(crate) fn record(&self) -> Option<StoredMemory> {
        let (request, _) = self.requested.as_ref()?;
        Some(StoredMemory {
            image_id: request.image_id,
            tier: request.tier,
            boot_id: (request.tier == Tier::Ram).then(boot_id).flatten(),
        })
    }

    /// Huge pages for memory that the plugin takes, and that may have to come back: when the
    /// container continues, or the dump fails.
    pub(crate) fn huge_pages(&self) -> Option<HugePages> {
        let (request, _) = self.requested.as_ref()?;
        match request.take {
            Take::Nothing => None,
            Take::Heaps | Take::GpuContents(_) => HugePages::if_wanted(&self.context.settings),
        }
    }

    /// After a successful dump: the manifest's entry for bulk memory.
    pub(crate) fn succeeded(&self, timeline: &mut Timeline<'_>) -> Option<StoredMemory> {
        let (_, files) = self.requested.as_ref()?;
        let report = self.with_stored(files.report());
        let has_run = report.is_some();
        let has_moved = report.as_ref().is_none_or(|report| report.areas > 0);
        if let Some(report) = report {
            if let Some(error) = &report.error {
                timeline.note(format!("bulk memory, after the dump: {error}"));
            }
            match &self.away {
                Some(_) => timeline.set_bulk_memory(report),
                None => request::record_report(timeline, "dump", "drain", report),
            }
        }
        if !has_moved || !has_index(self.image.path()) {
            if !has_run {
                timeline.note("CRIU alone moved the memory: it has not loaded the plugin");
            }
            return None;
        }
        // Who copies to disk leaves a store without an origin alone.
        if self.in_tier.is_none() {
            self.write_origin_or_note(timeline);
        }
        self.record()
    }

    /// After a successful dump: waits until tasks that continue have their memory back. Returns the
    /// reason if they do not get it.
    pub(crate) fn not_returned(&self) -> Option<String> {
        let (request, files) = self.requested.as_ref()?;
        match request.after {
            After::End => None,
            After::GoOn => self
                .give_back_at_once()
                .or_else(|| files.not_returned(self.context.settings.deadlines.stalled())),
        }
    }

    /// After a failed dump: waits until tasks have their memory back, and returns the plugin's
    /// report.
    pub(crate) fn failed(&self, container: &Container) -> MemoryFailure {
        let Some((request, files)) = &self.requested else {
            return MemoryFailure::without_plugin();
        };
        let not_returned = files.not_returned(self.context.settings.deadlines.stalled());
        let not_returned = self.give_back_to(container).or(not_returned);
        let report = files.report();
        let moved = report.as_ref().map(|report| report.bytes);
        let report = report.unwrap_or_default();
        // The store has the only copy of memory that tasks still lack.
        if self.image.is_last_copy(container.init()) {
            let _ = self.write_origin();
        } else if not_returned.is_none() {
            self.discard(request);
        }
        MemoryFailure {
            error: report.error,
            moved,
            not_returned,
        }
    }

    /// After a failed dump: why the plugin refused it before it changed anything, if it did.
    pub(crate) fn mismatch(&self) -> Option<TreeMismatch> {
        self.requested.as_ref()?.1.report()?.mismatch
    }

    /// Once no manifest lists bulk memory: removes the empty index that the plugin wrote, so that
    /// the image is one that CRIU made alone.
    pub(crate) fn remove_unused(&self) {
        let in_tier = self.in_tier.as_ref().map(|in_tier| &in_tier.request);
        let requested = self.requested.as_ref().map(|(request, _)| request);
        for request in in_tier.into_iter().chain(requested) {
            self.discard(request);
        }
    }
}

/// Whether an image has bulk memory that CRIU alone does not restore.
pub(crate) fn has_index(image: &Path) -> bool {
    image.join(INDEX_FILE).symlink_metadata().is_ok()
}
