//! GPU contents that are in memory until their processes go on, and are stored in their place then.
//!
//! A disk takes many times as long as the driver. So a checkpoint that its container survives first
//! makes a store in memory, whose packs the driver has filled: the processes get their contents
//! back and resume. From these packs, which no process can change any more, the contents are copied
//! to where the settings put them, before the image is reported good.

use stasis_gpu::gpu_path::detached;

use super::contents::Contents;
use super::requests::Request;
use super::{DumpStore, MemoryDump};
use crate::error::Failure;
use crate::image::manifest::StoredMemory;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::timeline::Timeline;

impl MemoryDump<'_> {
    /// Once the processes resume: stores the staged contents in their place. Returns the manifest's
    /// entry for them, or `None` if nothing was staged.
    ///
    /// # Errors
    /// [`Failure::GpuContents`], [`Failure::Cancelled`], [`Failure::Operation`]: the image is not
    /// to be reported good.
    pub(crate) fn store_staged(
        &mut self,
        timeline: &mut Timeline<'_>,
    ) -> Result<Option<StoredMemory>, Failure> {
        let Some(DumpStore {
            requests,
            contents: Contents::Dumped(_),
            ..
        }) = &mut self.store
        else {
            return Ok(None);
        };
        let Some(Request { wanted, files }) = &requests.afterwards else {
            return Ok(None);
        };
        // A recovery of this operation finds the store by this request.
        files.write(wanted)?;
        let staged = &requests.now.wanted;
        let (image, cancel) = (self.image.path(), &self.context.cancel);
        let estimate = ProgressEstimate::said(&files.progress);
        let report = timeline.time_moving("store staged", estimate, || {
            detached::store_again(image, staged, (wanted, &files.request), cancel)
        })?;
        timeline.bulk_memory = Some(report);
        requests.are_in_place();
        self.write_origin_or_note(timeline);
        Ok(self.record())
    }
}
