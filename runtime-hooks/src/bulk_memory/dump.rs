//! The bulk memory of a checkpoint: GPU contents that are stored from files of ours before the
//! dump, and are holes in CRIU's images.

pub(crate) mod away;
mod keep;
mod requests;
mod staged;

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use stasis_linux::file_system::FileSystem;
use stasis_linux::file_system::detached::DetachedMount;
use stasis_memory_store::{DumpRequest, INDEX_FILE, PacksIn};

use crate::bulk_memory::dump::away::Away;
use crate::bulk_memory::dump::requests::requests;
use crate::bulk_memory::dump::staged::Afterwards;
use crate::bulk_memory::in_use::InUse;
use crate::bulk_memory::plugin::Plugins;
use crate::bulk_memory::request::RequestFiles;
use crate::bulk_memory::room::GpuContentsIn;
use crate::context::Context;
use crate::error::Failure;
use crate::gpu_path::hole::Holder;
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
    /// What is to be stored; `None`: CRIU dumps all memory.
    requested: Option<(DumpRequest, RequestFiles)>,
    /// How GPU contents are stored once their processes go on, if they are in memory until then.
    afterwards: Option<Afterwards>,
    /// Who stores GPU contents while the driver is at work; nobody stores once this is dropped.
    storing: Option<Holder>,
    /// Through which processes get packs that the driver fills.
    mount: Option<Arc<DetachedMount>>,
    /// GPU contents that are stored already.
    away: Option<Away>,
    /// The operation's.
    directory: &'a Path,
    /// Its store, before the image is where the origin says.
    in_use: OnceCell<InUse>,
}

impl<'a> MemoryDump<'a> {
    /// Prepares what GPU contents in files are stored in; `None`: there are none, and CRIU dumps
    /// all memory. Removes packs that belong to no image from the new image's directory.
    pub(crate) fn prepare(
        context: &'a Context,
        options: &'a CheckpointRequest,
        image: &'a NewImage,
        plugins: &'a Plugins,
        operation: &'a Operation,
        stored: Option<GpuContentsIn>,
        timeline: &mut Timeline<'_>,
    ) -> Result<Self, Failure> {
        stasis_memory_store::discard(image.path(), None)?;
        let (requested, afterwards) = match stored {
            Some(stored) => {
                let (requested, afterwards) = requests(context, operation, stored, timeline)?;
                (Some(requested), afterwards)
            }
            None => (None, None),
        };
        Ok(Self {
            context,
            options,
            image,
            plugins,
            requested,
            afterwards,
            storing: None,
            mount: None,
            away: None,
            directory: operation.directory(),
            in_use: OnceCell::new(),
        })
    }

    /// The file system that has the image's contents, if they are not in the image.
    pub(crate) fn store(&self) -> Option<&FileSystem> {
        let (request, _) = self.requested.as_ref()?;
        let is_apart = request.packs_in() == PacksIn::Directory;
        self.plugins.store.as_ref().filter(|_| is_apart)
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
            shared_memory: None,
        }
    }

    /// The manifest's entry, if something is stored.
    pub(crate) fn record(&self) -> Option<StoredMemory> {
        let (request, _) = self.requested.as_ref()?;
        Some(StoredMemory {
            image_id: request.image_id,
            packs_in: request.packs_in(),
        })
    }

    /// After a successful dump: records what is stored.
    pub(crate) fn succeeded(&self, timeline: &mut Timeline<'_>) {
        if let Some(away) = &self.away {
            timeline.set_bulk_memory(away.stored.clone());
        }
        // What is staged is nobody's to keep.
        if self.afterwards.is_none() {
            self.write_origin_or_note(timeline);
        }
    }

    /// Removes all that was written of it, unless processes lack what is in it.
    pub(crate) fn remove_unused(&self) {
        if self.is_stored_alone() {
            return;
        }
        let afterwards = self.afterwards.as_ref();
        let afterwards = afterwards.map(|afterwards| &afterwards.request);
        let requested = self.requested.as_ref().map(|(request, _)| request);
        for request in afterwards.into_iter().chain(requested) {
            self.discard(request);
        }
    }
}

/// Whether an image has bulk memory that CRIU alone does not restore.
pub(crate) fn has_index(image: &Path) -> bool {
    image.join(INDEX_FILE).symlink_metadata().is_ok()
}
