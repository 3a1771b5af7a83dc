//! The bulk memory of a checkpoint: GPU contents that are stored from files of ours before the
//! dump, and are holes in CRIU's images.

mod contents;
pub(crate) mod requests;
mod staged;

use std::io;
use std::path::Path;

use stasis_gpu::gpu_path::NewFiles;
use stasis_gpu::gpu_path::detached::are_detached;
use stasis_linux::file_system::FileSystem;
use stasis_memory_store::{INDEX_FILE, PacksIn};

use crate::bulk_memory::dump::contents::Contents;
use crate::bulk_memory::dump::requests::Requests;
use crate::bulk_memory::in_use::{self, InUse};
use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::plugin::Plugins;
use crate::container::Container;
use crate::context::Context;
use crate::error::Failure;
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
    operation: &'a Operation,
    /// `None`: CRIU dumps all memory.
    store: Option<DumpStore>,
}

/// The store of GPU contents that CRIU does not dump.
#[derive(Debug)]
struct DumpStore {
    requests: Requests,
    /// The driver's files that the contents are stored from.
    files: NewFiles,
    contents: Contents,
    /// Keeps the store until the image is at the path that the origin records.
    in_use: Option<InUse>,
}

impl<'a> MemoryDump<'a> {
    /// CRIU dumps all memory, unless a store is prepared for some. Removes packs that belong to no
    /// image from the new image's directory.
    pub(crate) fn begin(
        context: &'a Context,
        options: &'a CheckpointRequest,
        image: &'a NewImage,
        plugins: &'a Plugins,
        operation: &'a Operation,
    ) -> Result<Self, Failure> {
        stasis_memory_store::discard(image.path(), None)?;
        Ok(Self {
            context,
            options,
            image,
            plugins,
            operation,
            store: None,
        })
    }

    /// Prepares the store for GPU contents in files; returns the kind of files to make for them.
    pub(crate) fn prepare(&mut self, requests: Requests) -> Result<NewFiles, Failure> {
        let store = self.store.insert(DumpStore {
            requests,
            files: NewFiles::Nameless,
            contents: Contents::Unstored,
            in_use: None,
        });
        // If the files cannot be prepared, the store has to be undone as well.
        store.files = store.requests.new_files()?;
        Ok(store.files.clone())
    }

    /// The file system that has the image's contents, if they are not in the image.
    pub(crate) fn store(&self) -> Option<&FileSystem> {
        let is_apart = self.record()?.packs_in == PacksIn::Directory;
        self.plugins.store.as_ref().filter(|_| is_apart)
    }

    /// The environment that passes the plugin directory and the request to CRIU.
    pub(crate) fn environment(&self) -> Environment<'_> {
        let store = self.store.as_ref();
        Environment {
            plugins: &self.plugins.directory,
            memory_request: store.map(|store| store.requests.now.files.request.as_path()),
            configuration: self.plugins.configuration.as_deref(),
            not_dumped: &[],
            mounted: &[],
        }
    }

    /// The manifest's entry, if something is stored. An image with staged contents is never whole,
    /// so it has none.
    pub(crate) fn record(&self) -> Option<StoredMemory> {
        let requests = &self.store.as_ref()?.requests;
        let request = &requests.now.wanted;
        requests.afterwards.is_none().then(|| StoredMemory {
            image_id: request.image_id,
            packs_in: request.packs_in(),
        })
    }

    /// After a successful dump: records what is stored.
    pub(crate) fn succeeded(&mut self, timeline: &mut Timeline<'_>) {
        let Some(store) = &self.store else {
            return;
        };
        if let Contents::Dumped(stored) = &store.contents {
            timeline.bulk_memory = Some(stored.clone());
        }
        // A staged store is temporary: it gets no origin.
        if store.requests.afterwards.is_none() {
            self.write_origin_or_note(timeline);
        }
    }

    /// Records the container to which the contents belong, and holds the store against removal.
    fn write_origin(&mut self) -> io::Result<()> {
        if let Some(store) = &mut self.store
            && let Some(directory) = &store.requests.now.wanted.directory
        {
            store.in_use = in_use::hold(directory)?;
            let (id, image) = (&self.options.id, &self.options.image_path);
            Origin::new(id, image, self.context.began).write(directory)?;
        }
        Ok(())
    }

    /// [`Self::write_origin`] for an image that can be restored without the origin.
    fn write_origin_or_note(&mut self, timeline: &mut Timeline<'_>) {
        if let Err(error) = self.write_origin() {
            timeline.note(format!("cannot write whose its GPU contents are: {error}"));
        }
    }

    /// After a failure: gives the contents back to their processes and removes the store. A dump
    /// after this has all memory in CRIU's images.
    pub(crate) fn undo(&mut self, container: &Container) {
        let Some(store) = &mut self.store else {
            return;
        };
        let contents = std::mem::take(&mut store.contents);
        let not_returned = contents.undo(container, self.operation.directory());
        self.disown_staged();
        if self.image.is_last_copy(container.init()) {
            let _ = self.write_origin();
        } else if not_returned.is_none() {
            self.remove_unused();
        }
    }

    /// Makes an image never whole whose contents are staged: restores do not look for them there.
    pub(crate) fn disown_staged(&self) {
        let requests = self.store.as_ref().map(|store| &store.requests);
        if requests.is_some_and(|requests| requests.afterwards.is_some()) {
            self.image.disown();
        }
    }

    /// Removes all files of the store, unless processes lack contents that are in it.
    pub(crate) fn remove_unused(&mut self) {
        if !self.is_stored_alone()
            && let Some(store) = self.store.take()
        {
            store.requests.discard(self.image.path());
        }
    }

    /// Whether the store may have the only copy of what processes lack.
    pub(crate) fn is_stored_alone(&self) -> bool {
        are_detached(self.operation.directory())
    }
}

/// Whether an image has bulk memory that CRIU alone does not restore.
pub(crate) fn has_index(image: &Path) -> bool {
    image.join(INDEX_FILE).symlink_metadata().is_ok()
}
