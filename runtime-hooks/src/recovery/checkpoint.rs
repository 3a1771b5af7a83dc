//! The image and the bulk memory of a checkpoint whose operation was killed.

use std::io;
use std::path::Path;

use stasis_linux::file;
use stasis_memory_store::{DumpRequest, Index, STORE_INDEX_FILE};

use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::request::RequestFiles;
use crate::container::Container;
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::gpu_path::hole::{self, are_away};
use crate::image::directory::staged_contents::were_staged;
use crate::image::directory::{has_inventory, taken_over};
use crate::operation::Operation;
use crate::operation::undo::{Begun, ImagePlace, Undo};

/// A request lists every CUDA process by its pid.
const MAX_REQUEST_BYTES: u64 = 16 << 20;

/// Removes what was written of an image, once processes have the GPU contents back that were away:
/// the container lives, and nobody has verified the image. The packs have the only copy of what
/// does not come back, and stay.
pub(super) fn give_up(
    context: &Context,
    operation: &Operation,
    container: &Container,
    image: &ImagePlace,
) {
    match give_back(operation, container) {
        Ok(()) => discard(context, operation, image),
        Err(_) => taken_over::keep_memory_only(image),
    }
}

/// Removes what was written of an image that nobody needs.
pub(super) fn discard(context: &Context, operation: &Operation, image: &ImagePlace) {
    let files = RequestFiles::of(operation.directory());
    let limit = context.settings.deadlines.stalled();
    let staged = RequestFiles::of_staged(operation.directory());
    // Who stores for a disk that hangs ends when that does.
    for stored in [&files, &staged] {
        stored.wait_until_done(limit);
    }
    let requests: Vec<_> = [&files, &staged].into_iter().filter_map(read).collect();
    let stores = requests.iter();
    let stores: Vec<_> = stores
        .filter_map(|request| request.directory.as_deref())
        .collect();
    // What stays here is in the way of nobody: the next checkpoint in the directory removes it.
    let _ = taken_over::give_up(image, &stores);
}

/// Gives GPU contents back that are away from the processes. None of a frozen container can map
/// anything; who brings it back to how it was found freezes it again.
fn give_back(operation: &Operation, container: &Container) -> io::Result<()> {
    if are_away(operation.directory()) {
        // One that cannot be thawed is a process that cannot be given anything.
        let _ = container.cgroup().thaw();
    }
    hole::give_back(operation.directory())
}

fn read(files: &RequestFiles) -> Option<DumpRequest> {
    let text = file::read(&files.request, MAX_REQUEST_BYTES).ok()??;
    serde_json::from_slice(&text).ok()
}

/// The container has ended. If a checkpoint has ended it, its image is whole, and takes the place
/// of an earlier one.
pub(super) fn has_ended(context: &Context, operation: &Operation, undo: &Undo) -> AfterFailure {
    if let Begun::Checkpoint {
        image: Some(image), ..
    } = &undo.begun
    {
        if were_staged(image) {
            // It was to go on, and an image without its contents is none.
            discard(context, operation, image);
        } else {
            // If that fails, the next restore from the directory, or checkpoint into it, goes on.
            let _ = taken_over::finish(image);
            keep_memory(context, operation, undo, image);
        }
    }
    operation.clear();
    AfterFailure::Ended
}

/// Records whose contents are in the store of an image that is whole.
pub(super) fn keep_memory(
    context: &Context,
    operation: &Operation,
    undo: &Undo,
    image: &ImagePlace,
) {
    let image = image.directory();
    if !has_inventory(image) {
        return;
    }
    let files = [
        RequestFiles::of_staged(operation.directory()),
        RequestFiles::of(operation.directory()),
    ];
    // The index is of one of them; the other is not finished, or not needed any more.
    let index = Index::read(image)
        .ok()
        .flatten()
        .map(|index| index.image_id);
    for files in files {
        let Some(request) = read(&files) else {
            continue;
        };
        let Some(store) = &request.directory else {
            continue;
        };
        match index {
            Some(other) if other != request.image_id => {
                // What stays is found by `stasis gc`.
                let _ = stasis_memory_store::remove(store);
            }
            _ => keep_store(context, undo, image, &files, store),
        }
    }
}

fn keep_store(context: &Context, undo: &Undo, image: &Path, files: &RequestFiles, store: &Path) {
    if !store.join(STORE_INDEX_FILE).exists() || Origin::read(store).is_some() {
        return;
    }
    let began = files.request.metadata().and_then(|file| file.modified());
    let began = began.unwrap_or(context.began);
    // Without it the contents are those of nobody, but their image is whole.
    let _ = Origin::new(&undo.id, image, began).write(store);
}
