//! The store of a dump: whose memory it has, that it comes to disk, or that it goes.

use std::io;

use stasis_linux::file::Durability;
use stasis_memory_store::{DumpRequest, Tier};

use super::MemoryDump;
use crate::bulk_memory::in_use;
use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::pending;
use crate::bulk_memory::stores::{self, Stores};
use crate::bulk_memory::write_behind;
use crate::operation::timeline::Timeline;

impl MemoryDump<'_> {
    /// Records whose memory is in the store, which makes a copy of it to disk pending.
    pub(super) fn write_origin(&self) -> io::Result<()> {
        let request = self.requested.as_ref().map(|(request, _)| request);
        let Some(directory) = request.and_then(|request| request.directory.as_ref()) else {
            return Ok(());
        };
        if let Some(in_use) = in_use::hold(directory)? {
            let _ = self.in_use.set(in_use);
        }
        self.origin().write(directory, Durability::Volatile)
    }

    /// The same for an image that can be restored without this file.
    pub(super) fn write_origin_or_note(&self, timeline: &mut Timeline<'_>) {
        if let Err(error) = self.write_origin() {
            timeline.note(format!(
                "cannot write the origin of its bulk memory: {error}"
            ));
        }
    }

    fn origin(&self) -> Origin {
        let (context, options) = (self.context, self.options);
        let image = &options.image_path;
        Origin::new(&options.id, &context.root, image, context.began)
    }

    /// Before the image is reported good: records on disk that a copy of its memory is pending, if
    /// it is in memory alone. The container goes on by then, or has ended.
    pub(crate) fn record_pending(&self, timeline: &mut Timeline<'_>) {
        if let Some((request, _)) = &self.requested
            && request.tier == Tier::Ram
            && let Err(error) = pending::record(&self.stores(), request.image_id, &self.origin())
        {
            timeline.note(format!(
                "the disk does not show that bulk memory {} is in memory alone: {error}",
                request.image_id
            ));
        }
    }

    /// Starts the process that copies what is in memory alone to disk, and removes the memory of
    /// the image that this one has replaced, and what the settings do not keep.
    pub(crate) fn start_copy(&self, timeline: &mut Timeline<'_>) {
        let settings = &self.context.settings;
        let has_any = |parent| stores::names_in(parent).is_ok_and(|names| !names.is_empty());
        let stores = self.stores();
        if !(has_any(&stores.disk) || has_any(&stores.ram)) {
            return;
        }
        if let Err(error) = write_behind::start(settings) {
            timeline.note(format!(
                "bulk memory is not copied to disk before the next operation: {error}"
            ));
        }
    }

    /// Removes all that was written of it.
    pub(super) fn discard(&self, request: &DumpRequest) {
        // Files that stay do not prevent a restore; `stasis memory prune` finds the store.
        let directory = request.directory.as_deref();
        let _ = stasis_memory_store::discard(self.image.path(), directory);
        if request.tier == Tier::Ram {
            let _ = pending::forget(&self.stores(), request.image_id);
        }
    }

    fn stores(&self) -> Stores {
        Stores::of(&self.context.settings)
    }
}
