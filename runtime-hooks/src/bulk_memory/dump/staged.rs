//! GPU contents that are in memory until their processes go on, and are stored in their tier then.
//!
//! A disk takes many times as long as the driver. So a checkpoint that its container survives first
//! makes a store in memory, as in the tier "ram", whose packs the driver has filled: the processes
//! get their contents back and go on. From these packs, which nobody can change any more, the
//! contents go into the tier of the settings, before the image is reported good.

use stasis_config::MemoryTier;
use stasis_memory_store::{DumpRequest, Tier};

use super::MemoryDump;
use crate::bulk_memory::ram_tier::{self, GpuContentsIn, Stored};
use crate::bulk_memory::request::RequestFiles;
use crate::bulk_memory::stores::Stores;
use crate::context::Context;
use crate::error::Failure;
use crate::gpu_path::hole;
use crate::image::manifest::StoredMemory;
use crate::ledger::Reservation;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;

/// What is asked for once the processes go on.
#[derive(Debug)]
pub(super) struct InTier {
    pub(super) request: DumpRequest,
    pub(super) files: RequestFiles,
}

/// The tier in which contents are to be stored once their processes go on, if they can be in memory
/// until then.
pub(super) fn tier_afterwards(
    context: &Context,
    reservation: &Reservation,
    stores: &Stores,
    stored: Stored<'_>,
    timeline: &mut Timeline<'_>,
) -> Option<Tier> {
    let GpuContentsIn::FilesUntilTheyGoOn(_) = stored.gpu else {
        return None;
    };
    let tier = match context.settings.bulk_memory.tier {
        MemoryTier::Portable => Tier::Portable,
        MemoryTier::Disk => Tier::Disk,
        MemoryTier::Ram => return None,
    };
    match ram_tier::make_room(context, reservation, stores, stored, timeline) {
        Ok(()) => Some(tier),
        Err(why) => {
            timeline.note(format!(
                "the processes go on only when their GPU contents are stored: {why}"
            ));
            None
        }
    }
}

impl MemoryDump<'_> {
    /// Once the processes go on: stores in its tier what was in memory until then. Returns the
    /// manifest's entry for it, or `None` if it is where it was.
    ///
    /// # Errors
    /// [`Failure::GpuContents`], [`Failure::Cancelled`], [`Failure::Operation`]: the image is not
    /// to be reported good.
    pub(crate) fn store_in_tier(
        &mut self,
        timeline: &mut Timeline<'_>,
    ) -> Result<Option<StoredMemory>, Failure> {
        let (Some((staged, _)), Some(InTier { request, files }), Some(_)) =
            (&self.requested, &self.in_tier, &self.away)
        else {
            return Ok(None);
        };
        // Whoever recovers this operation finds the store there.
        files.write(request)?;
        let (image, cancel) = (self.image.path(), &self.context.cancel);
        let estimate = ProgressEstimate::said(&files.progress);
        let report = timeline.time_moving("store in tier", estimate, || {
            hole::store_again(image, staged, (request, &files.request), cancel)
        })?;
        timeline.set_bulk_memory(report);
        self.remove_staged();
        self.write_origin_or_note(timeline);
        Ok(self.record())
    }

    /// From now on what the tier has, or is to have, is what there is.
    pub(super) fn remove_staged(&mut self) {
        let Some(InTier { request, files }) = self.in_tier.take() else {
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
