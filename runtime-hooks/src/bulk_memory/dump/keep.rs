//! The store of a dump: whose contents it has, or that it goes.

use std::io;

use stasis_memory_store::DumpRequest;

use super::MemoryDump;
use crate::bulk_memory::in_use;
use crate::bulk_memory::origin::Origin;
use crate::operation::timeline::Timeline;

impl MemoryDump<'_> {
    /// Records whose contents are in the store, and keeps it from being removed.
    pub(super) fn write_origin(&self) -> io::Result<()> {
        let request = self.requested.as_ref().map(|(request, _)| request);
        let Some(directory) = request.and_then(|request| request.directory.as_ref()) else {
            return Ok(());
        };
        if let Some(in_use) = in_use::hold(directory)? {
            let _ = self.in_use.set(in_use);
        }
        let (context, options) = (self.context, self.options);
        Origin::new(&options.id, &options.image_path, context.began).write(directory)
    }

    /// The same for an image that can be restored without this file.
    pub(super) fn write_origin_or_note(&self, timeline: &mut Timeline<'_>) {
        if let Err(error) = self.write_origin() {
            timeline.note(format!("cannot write whose its GPU contents are: {error}"));
        }
    }

    /// Removes all that was written of it.
    pub(super) fn discard(&self, request: &DumpRequest) {
        // Files that stay do not prevent a restore; `stasis gc` finds the store.
        let directory = request.directory.as_deref();
        let _ = stasis_memory_store::discard(self.image.path(), directory);
    }
}
