//! Which stores are removed, and why.
//!
//! By itself stasis removes only what an image in the same directory has replaced, and what the
//! settings say (`keep`, `max_bytes`). That an image is not where it was written is believed only
//! of one that was there for long: containerd and CRI-O write to a directory that they remove when
//! the image is in a registry or an archive, whose memory is still needed then.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stasis_config::{BulkMemory, Settings};
use stasis_memory_store::ImageId;

use crate::bulk_memory::kept::{Image, Kept, all};
use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::stores::Stores;

/// A store that was not written to for this long is not being written.
pub(crate) const CUT_OFF: Duration = Duration::from_secs(3600);

/// Removes what a later image in the same directory has replaced, and what is more than the
/// settings keep. What cannot be removed now stays for the next time.
pub(crate) fn tidy(settings: &Settings) {
    let stores = Stores::of(settings);
    let Ok(kept) = all(&stores) else {
        return;
    };
    let (replaced, others): (Vec<_>, Vec<_>) = kept.into_iter().partition(is_replaced);
    let excess = excess(&others, &settings.bulk_memory);
    for kept in replaced
        .iter()
        .chain(excess.into_iter().map(|(kept, _)| kept))
    {
        let _ = kept.remove(&stores);
    }
}

/// Whether a later image has its place, which is not a place from where images are exported.
fn is_replaced(kept: &Kept) -> bool {
    !kept.lost && !kept.exported && kept.image == Image::Replaced
}

/// Why no image on this machine seems to need it.
pub(crate) fn why_left_over(kept: &Kept) -> Option<&'static str> {
    let is_settled = |origin: &Origin| origin.settled && !origin.exported;
    match kept.image {
        _ if kept.lost => Some("it was lost when this machine restarted"),
        Image::Replaced if is_replaced(kept) => Some("another image has its place"),
        Image::Gone if kept.origin.as_ref().is_some_and(is_settled) => Some("its image is gone"),
        Image::Unknown if !kept.complete && kept.idle > CUT_OFF => {
            Some("its checkpoint was interrupted")
        }
        _ => None,
    }
}

/// What is more than the settings keep, the oldest first, and why. The newest of each container
/// stays, and what is not on disk.
pub(crate) fn excess<'k>(all: &'k [Kept], settings: &BulkMemory) -> Vec<(&'k Kept, &'static str)> {
    let mut excess = Vec::new();
    let mut newer: HashMap<(&str, &Path), usize> = HashMap::new();
    let mut spare = Vec::new();
    let durable = all
        .iter()
        .filter(|kept| kept.complete && kept.durable && !kept.lost);
    for kept in durable.rev() {
        let Some(origin) = &kept.origin else {
            continue;
        };
        let newer = newer.entry((&origin.container, &origin.root)).or_default();
        if settings.keep > 0 && *newer >= settings.keep {
            excess.push((kept, "its container has newer ones (bulk_memory.keep)"));
        } else if *newer > 0 {
            spare.push(kept);
        }
        *newer += 1;
    }
    excess.reverse();
    // First what nobody seems to need, then the oldest.
    spare.reverse();
    spare.sort_by_key(|kept| why_left_over(kept).is_none());
    let removed = |excess: &[(&Kept, _)]| excess.iter().map(|(kept, _)| kept.image_id).collect();
    let mut spare = spare.into_iter();
    while settings.max_bytes > 0 && used(all, &removed(&excess)) > settings.max_bytes {
        let Some(next) = spare.next() else {
            break;
        };
        excess.push((next, "all take more than bulk_memory.max_bytes"));
    }
    excess
}

/// The bytes of all that is on disk but these; packs that several have linked count once.
fn used(all: &[Kept], without: &HashSet<ImageId>) -> u64 {
    let on_disk = all
        .iter()
        .filter(|kept| kept.durable && !without.contains(&kept.image_id));
    let directories = on_disk.filter_map(|kept| kept.directories.first());
    let files: HashMap<(u64, u64), u64> = directories.flat_map(files_in).collect();
    files.values().sum()
}

/// The files of a directory, each by its inode, with the bytes that it takes.
fn files_in(directory: &PathBuf) -> Vec<((u64, u64), u64)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    // `st_blocks` counts 512 bytes on every file system.
    files
        .map(|file| ((file.dev(), file.ino()), file.blocks() * 512))
        .collect()
}

#[cfg(test)]
mod tests;
