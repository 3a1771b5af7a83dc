//! Indexes and CRIU images that do not belong together.

use anyhow::Result;

use super::Images;

/// Only the processes can show it, once CRIU has restored them.
pub(super) fn the_index_says_what_is_not_so(images: &Images<'_>) -> Result<()> {
    let ended = "what had been restored was ended";
    let elsewhere = ["the place of its GPU contents cannot be", ended];
    images.forged_and_seen(
        |index| {
            if let Some(area) = index.processes[0].areas.last_mut() {
                // A chunk would have to be a whole one.
                area.chunks.pop();
                area.bytes += 1 << 30;
            }
        },
        &elsewhere,
    )?;
    images.forged_and_seen(
        |index| {
            if let Some(area) = index.processes[0].areas.last_mut() {
                area.start -= 1 << 30;
            }
        },
        &elsewhere,
    )?;
    images.forged_and_seen(
        |index| index.processes[0].pid = 4242,
        &["process 4242", "is not there", ended],
    )
}
