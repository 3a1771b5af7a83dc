//! GPU contents that are in memory until their processes go on, and are stored in their place then.
//!
//! A disk takes many times as long as the driver. So a checkpoint that its container survives first
//! makes a store in memory, whose packs the driver has filled: the processes get their contents
//! back and go on. From these packs, which nobody can change any more, the contents go where the
//! settings put them, before the image is reported good.

use stasis_memory_store::DumpRequest;

use super::MemoryDump;
use crate::bulk_memory::places::{self, Places};
use crate::bulk_memory::request::RequestFiles;
use crate::bulk_memory::room::GpuContentsIn;
use crate::bulk_memory::staging;
use crate::context::Context;
use crate::error::Failure;
use crate::gpu_path::hole;
use crate::image::manifest::StoredMemory;
use crate::ledger::Reservation;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;

/// What is asked for once the processes go on.
#[derive(Debug)]
pub(super) struct Afterwards {
    pub(super) request: DumpRequest,
    pub(super) files: RequestFiles,
}

/// Whether contents are in memory until their processes go on, and stored in their place then.
pub(super) fn are_staged(
    context: &Context,
    reservation: &Reservation,
    places: &Places,
    stored: GpuContentsIn,
    timeline: &mut Timeline<'_>,
) -> bool {
    let GpuContentsIn::FilesUntilTheyGoOn(_) = stored else {
        return false;
    };
    if places.apart.as_deref().is_some_and(places::in_memory) {
        return false;
    }
    let room = staging::make_room(context, reservation, places, stored);
    if let Err(why) = &room {
        timeline.note(format!(
            "the processes go on only when their GPU contents are stored: {why}"
        ));
    }
    room.is_ok()
}

impl MemoryDump<'_> {
    /// Once the processes go on: stores in its place what was in memory until then. Returns the
    /// manifest's entry for it, or `None` if it is where it was.
    ///
    /// # Errors
    /// [`Failure::GpuContents`], [`Failure::Cancelled`], [`Failure::Operation`]: the image is not
    /// to be reported good.
    pub(crate) fn store_staged(
        &mut self,
        timeline: &mut Timeline<'_>,
    ) -> Result<Option<StoredMemory>, Failure> {
        let (Some((staged, _)), Some(Afterwards { request, files }), Some(_)) =
            (&self.requested, &self.afterwards, &self.away)
        else {
            return Ok(None);
        };
        // Whoever recovers this operation finds the store there.
        files.write(request)?;
        let (image, cancel) = (self.image.path(), &self.context.cancel);
        let estimate = ProgressEstimate::said(&files.progress);
        let report = timeline.time_moving("store staged", estimate, || {
            hole::store_again(image, staged, (request, &files.request), cancel)
        })?;
        timeline.set_bulk_memory(report);
        self.remove_staged();
        self.write_origin_or_note(timeline);
        Ok(self.record())
    }

    /// From now on what is, or is to be, in its place is what there is.
    pub(super) fn remove_staged(&mut self) {
        let Some(Afterwards { request, files }) = self.afterwards.take() else {
            return;
        };
        if let Some((staged, _)) = self.requested.replace((request, files)) {
            // It goes with the machine's memory at the latest.
            let _ = staged
                .directory
                .map(|staged| stasis_memory_store::remove(&staged));
        }
    }
}
