//! The image and the bulk memory of a checkpoint whose operation was killed.

use std::path::PathBuf;

use stasis_linux::file;
use stasis_memory_store::DumpRequest;

use crate::bulk_memory::request::RequestFiles;
use crate::error::after_failure::AfterFailure;
use crate::image::directory::taken_over;
use crate::operation::Operation;
use crate::operation::undo::{Begun, ImagePlace};

/// A request lists every CUDA process by its pid.
const MAX_REQUEST_BYTES: u64 = 16 << 20;

/// Removes what was written of an image, once tasks have the memory back that was taken from them:
/// the container lives, and nobody has verified the image.
///
/// # Errors
/// [`AfterFailure::WithoutMemory`]: the packs may have the only copy of it, and stay.
pub(super) fn give_up(operation: &Operation, image: &ImagePlace) -> Result<(), AfterFailure> {
    let files = RequestFiles::of(operation.directory());
    files.wait_until_done();
    if files
        .report()
        .is_some_and(|report| report.not_returned.is_some())
    {
        taken_over::keep_memory_only(image);
        return Err(AfterFailure::WithoutMemory);
    }
    let request: Option<DumpRequest> = file::read(&files.request, MAX_REQUEST_BYTES)
        .ok()
        .flatten()
        .and_then(|text| serde_json::from_slice(&text).ok());
    let store: Option<PathBuf> = request.and_then(|request| request.directory);
    // What stays here is in the way of nobody: the next checkpoint in the directory removes it.
    let _ = taken_over::give_up(image, store.as_deref());
    Ok(())
}

/// The container has ended. If a checkpoint has ended it, its image is whole, and takes the place
/// of an earlier one.
pub(super) fn has_ended(operation: &Operation, begun: &Begun) -> AfterFailure {
    if let Begun::Checkpoint {
        image: Some(image), ..
    } = begun
    {
        // If that fails, the next restore from the directory, or checkpoint into it, goes on.
        let _ = taken_over::finish(image);
    }
    operation.clear();
    AfterFailure::Ended
}
