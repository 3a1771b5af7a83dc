//! The requests of a dump: where its bulk memory goes, and when.

use std::path::Path;

use stasis_memory_store::{DumpRequest, ImageId};

use crate::bulk_memory::dump::staged::{Afterwards, are_staged};
use crate::bulk_memory::places::{self, Places};
use crate::bulk_memory::request::{self, RequestFiles};
use crate::bulk_memory::room::GpuContentsIn;
use crate::bulk_memory::staging;
use crate::context::Context;
use crate::error::Failure;
use crate::operation::Operation;
use crate::operation::timeline::Timeline;

/// What is stored before the dump; and, if that is in memory until the processes go on, what is
/// stored then.
pub(super) fn requests(
    context: &Context,
    operation: &Operation,
    stored: GpuContentsIn,
    timeline: &mut Timeline<'_>,
) -> Result<((DumpRequest, RequestFiles), Option<Afterwards>), Failure> {
    let (directory, room) = (operation.directory(), operation.reservation());
    let files = RequestFiles::of(directory);
    let places = Places::of(&context.settings);
    let of = |parent: Option<&Path>, files: &_| dump_request(context, parent, files);
    if !are_staged(context, room, &places, stored, timeline) {
        let parent = staging::choose(room, &places, stored, timeline);
        return Ok(((of(parent.as_deref(), &files)?, files), None));
    }
    let staged = of(Some(&places.staging), &files)?;
    let files_afterwards = RequestFiles::of_staged(directory);
    let afterwards = Afterwards {
        request: of(places.apart.as_deref(), &files_afterwards)?,
        files: files_afterwards,
    };
    Ok(((staged, files), Some(afterwards)))
}

fn dump_request(
    context: &Context,
    parent: Option<&Path>,
    files: &RequestFiles,
) -> Result<DumpRequest, Failure> {
    let settings = &context.settings.gpu_contents;
    let image_id = ImageId::random().map_err(Failure::ImageId)?;
    let level = settings.compression_level;
    Ok(DumpRequest {
        image_id,
        directory: parent.map(|parent| places::of_image(parent, image_id)),
        threads: request::threads(&context.settings, parent),
        level: (level > 0).then_some(level),
        progress: Some(files.progress.clone()),
    })
}
