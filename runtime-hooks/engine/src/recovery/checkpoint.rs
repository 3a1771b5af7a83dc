//! The image and the bulk memory of a checkpoint whose operation was killed.

use std::io;
use std::path::Path;

use stasis_gpu::gpu_path::detached::{self, are_detached};
use stasis_memory_store::{DumpRequest, Index, STORE_INDEX_FILE};

use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::places::Places;
use crate::bulk_memory::request::{RequestFiles, of_dump};
use crate::container::Container;
use crate::context::Context;
use crate::error::after_failure::AfterFailure;
use crate::image::directory::{self, Rest};
use crate::operation::Operation;
use crate::operation::undo::{Begun, Undo};

/// Removes the files of an image, once the processes have their GPU contents back: the container
/// lives, and the image was not verified. If contents do not come back, the packs have the only
/// copy of them, and stay.
pub(super) fn give_up(
    context: &Context,
    operation: &Operation,
    container: &Container,
    image: &Path,
) {
    match give_back(operation, container) {
        Ok(()) => discard(context, operation, image),
        Err(_) => directory::disown(image),
    }
}

/// Removes the files of an image that is not needed. A committed image stays.
pub(super) fn discard(context: &Context, operation: &Operation, image: &Path) {
    remove(&stored(context, operation), image);
}

fn remove(requests: &[RequestFiles], image: &Path) {
    // Remaining files do no harm: the next checkpoint in the directory removes them.
    let _ = directory::give_up(image);
    remove_unnamed(requests, image);
}

/// The requests for the store before the dump and for the one in its place afterwards, when no
/// process stores any more. A process that writes to a hung disk ends when the disk answers.
fn stored(context: &Context, operation: &Operation) -> [RequestFiles; 2] {
    let directory = operation.directory();
    let files = [
        RequestFiles::of(directory),
        RequestFiles::of_staged(directory),
    ];
    for files in &files {
        files.wait_until_done(context.settings.deadlines.stalled());
    }
    files
}

/// Removes contents apart from images, unless an image at one of the directory's places has them.
/// `stasis gc` finds contents that stay.
fn remove_unnamed(requests: &[RequestFiles], image: &Path) {
    for request in requests.iter().filter_map(read) {
        if let Some(store) = &request.directory
            && Index::find(&directory::places(image), request.image_id).is_none()
        {
            let _ = stasis_memory_store::remove(store);
        }
    }
}

/// Removes contents that a killed checkpoint has staged in memory: once its container is deleted
/// with its record, nothing finds them. The rest is on a disk, which may hang, and is found there.
pub(crate) fn remove_staged(context: &Context, operation: &Operation) {
    let staging = Places::of(&context.settings).staging;
    let request = read(&RequestFiles::of(operation.directory()));
    let store = request.and_then(|request| request.directory);
    if let Some(store) = store.filter(|store| store.starts_with(staging)) {
        let _ = stasis_memory_store::remove(&store);
    }
}

/// Gives GPU contents back to the processes. No process of a frozen container can map anything; the
/// rollback freezes it again.
fn give_back(operation: &Operation, container: &Container) -> io::Result<()> {
    if are_detached(operation.directory()) {
        // If the container cannot be thawed, its contents cannot be given back.
        let _ = container.cgroup().thaw();
    }
    detached::give_back(operation.directory())
}

fn read(files: &RequestFiles) -> Option<DumpRequest> {
    of_dump(&files.request).ok().flatten()
}

/// The container has ended. If a checkpoint has ended it, its image is whole, and takes the place
/// of an earlier one.
pub(super) fn has_ended(context: &Context, operation: &Operation, undo: &Undo) -> AfterFailure {
    if let Begun::Checkpoint {
        image: Some(image), ..
    } = &undo.begun
    {
        commit(context, operation, undo, image);
    }
    operation.clear();
    AfterFailure::Ended
}

/// Moves an image to its place if it is whole, with a record of the container to which contents
/// apart from it belong; removes it otherwise. An image that cannot be moved now stays for the next
/// process that opens the directory.
pub(super) fn commit(context: &Context, operation: &Operation, undo: &Undo, image: &Path) {
    let requests = stored(context, operation);
    for files in &requests {
        keep_store(context, undo, image, files);
    }
    match directory::finish(&context.settings, image) {
        Ok(Rest::Committed) => remove_unnamed(&requests, image),
        Ok(Rest::NotWhole) => remove(&requests, image),
        Ok(Rest::Undecided) | Err(_) => {}
    }
}

fn keep_store(context: &Context, undo: &Undo, image: &Path, files: &RequestFiles) {
    let store = read(files).and_then(|request| request.directory);
    let Some(store) = store.filter(|store| store.join(STORE_INDEX_FILE).exists()) else {
        return;
    };
    if Origin::read(&store).is_none() {
        let began = files.request.metadata().and_then(|file| file.modified());
        let began = began.unwrap_or(context.began);
        // Without it the contents have no known owner, but their image is whole.
        let _ = Origin::new(&undo.id, image, began).write(&store);
    }
}
