//! The requests of a dump: where its bulk memory goes, and when.

use std::path::Path;

use stasis_memory_store::{Compression, DumpRequest, ImageId, Tier};

use crate::bulk_memory::dump::staged::{InTier, tier_afterwards};
use crate::bulk_memory::ram_tier::{self, Stored};
use crate::bulk_memory::request::{self, RequestFiles};
use crate::bulk_memory::stores::{self, Stores};
use crate::context::Context;
use crate::error::Failure;
use crate::operation::Operation;
use crate::operation::timeline::Timeline;
use crate::request::CheckpointRequest;

/// What is stored before the dump; and, if that is in memory until the processes go on, what is
/// stored then.
pub(super) fn requests(
    context: &Context,
    options: &CheckpointRequest,
    operation: &Operation,
    stored: Stored<'_>,
    timeline: &mut Timeline<'_>,
) -> Result<((DumpRequest, RequestFiles), Option<InTier>), Failure> {
    let (directory, room) = (operation.directory(), operation.reservation());
    let files = RequestFiles::of(directory);
    let stores = Stores::of(&context.settings);
    let of = |tier, files: &_| dump_request(context, options, tier, &stores, files);
    let Some(tier) = tier_afterwards(context, room, &stores, stored, timeline) else {
        let tier = ram_tier::choose(context, room, &stores, stored, timeline);
        return Ok(((of(tier, &files)?, files), None));
    };
    let staged = DumpRequest {
        // They stay in the packs that the driver has filled.
        earlier: None,
        ..of(Tier::Ram, &files)?
    };
    let files_of_tier = RequestFiles::of_tier(directory);
    let in_tier = InTier {
        request: of(tier, &files_of_tier)?,
        files: files_of_tier,
    };
    Ok(((staged, files), Some(in_tier)))
}

fn dump_request(
    context: &Context,
    options: &CheckpointRequest,
    tier: Tier,
    stores: &Stores,
    files: &RequestFiles,
) -> Result<DumpRequest, Failure> {
    let settings = &context.settings.bulk_memory;
    let image_id = ImageId::random().map_err(Failure::ImageId)?;
    let directory = stores.directory_of(tier, image_id);
    let parent = directory.as_deref().and_then(Path::parent);
    let earlier = parent.and_then(|parent| stores::newest_of(parent, &options.id, &context.root));
    let level = settings.compression_level;
    Ok(DumpRequest {
        image_id,
        tier,
        directory,
        earlier,
        threads: request::threads(&context.settings, tier),
        compression: (level > 0).then_some(Compression { level }),
        progress: Some(files.progress.clone()),
    })
}
