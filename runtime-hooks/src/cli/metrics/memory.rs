//! The tiers of bulk memory, and what operations have left.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stasis_config::Settings;

use super::failed;
use super::text::Family;
use crate::bulk_memory::kept::Kept;
use crate::bulk_memory::ram_tier;
use crate::bulk_memory::retention::why_left_over;
use crate::bulk_memory::stores::{Stores, names_in};
use crate::cli::command_error::CommandError;
use crate::cli::memory::list;
use crate::cli::recover::left_behind;
use crate::image::disk_space;

/// The unit of `st_blocks` (stat(2)).
const BLOCK: u64 = 512;

pub(super) fn families(settings: &Settings) -> Result<Vec<Family>, CommandError> {
    let stores = Stores::of(settings);
    let kept = list(settings)?;
    let operations = left_behind(&settings.paths.state_dir);
    let operations = operations.map_err(failed(
        "read",
        settings.paths.state_dir.display().to_string(),
    ))?;
    let mut families = tiers(&stores)?;
    families.extend(left_over(&kept, operations.len()));
    Ok(families)
}

fn tiers(stores: &Stores) -> Result<Vec<Family>, CommandError> {
    let mut used = Family::gauge(
        "stasis_memory_used_bytes",
        "What bulk memory takes that is kept apart from images, by its tier.",
    );
    let mut free = Family::gauge(
        "stasis_memory_free_bytes",
        "What its file system has free; absent for a tier that is not made yet.",
    );
    for (tier, directory) in [("disk", &stores.disk), ("ram", &stores.ram)] {
        let labels = [("tier", tier)];
        let io = failed("read", directory.display().to_string());
        used.add(&labels, used_in(directory).map_err(&io)? as f64);
        // Before it is mounted its directory is on another file system.
        let is_there = tier == "disk" || ram_tier::is_mounted(directory).map_err(&io)?;
        if is_there && let Some(bytes) = disk_space::free(directory).map_err(&io)? {
            free.add(&labels, bytes as f64);
        }
    }
    Ok(vec![used, free])
}

/// What the stores in a directory take. Files that several of them have count once.
fn used_in(parent: &Path) -> io::Result<u64> {
    let mut files = BTreeMap::new();
    for (_, store) in names_in(parent)? {
        let Ok(entries) = fs::read_dir(store) else {
            continue;
        };
        for entry in entries.flatten() {
            // One that is removed meanwhile takes nothing.
            if let Ok(file) = entry.metadata() {
                files.insert((file.dev(), file.ino()), file.blocks() * BLOCK);
            }
        }
    }
    Ok(files.into_values().sum())
}

fn left_over(kept: &[Kept], operations: usize) -> [Family; 2] {
    let unneeded: Vec<&Kept> = kept
        .iter()
        .filter(|kept| why_left_over(kept).is_some())
        .collect();
    let mut count = Family::gauge(
        "stasis_leftovers",
        "Operations that were killed and not undone yet (stasis recover), and bulk memory that \
         no image needs (stasis memory prune).",
    );
    count.add(&[("what", "operation")], operations as f64);
    count.add(&[("what", "memory")], unneeded.len() as f64);
    let mut bytes = Family::gauge(
        "stasis_leftover_memory_bytes",
        "What bulk memory takes that no image needs.",
    );
    let own: u64 = unneeded.iter().map(|kept| kept.own_bytes).sum();
    bytes.add(&[], own as f64);
    [count, bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stores_share_counts_once() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(used_in(&parent.path().join("none")).unwrap(), 0);
        let [first, second] = ["1", "2"].map(|name| parent.path().join(name));
        for store in [&first, &second] {
            fs::create_dir(store).unwrap();
        }
        fs::write(first.join("pack"), vec![1; 1 << 20]).unwrap();
        let once = used_in(parent.path()).unwrap();
        assert!(once >= 1 << 20, "{once}");
        fs::hard_link(first.join("pack"), second.join("pack")).unwrap();
        assert_eq!(used_in(parent.path()).unwrap(), once);
    }

    #[test]
    fn an_empty_machine_has_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.bulk_memory.directory = directory.path().join("disk");
        settings.paths.state_dir = directory.path().join("run");
        let families = families(&settings).unwrap();
        let text: String = families.iter().map(Family::to_string).collect();
        for sample in [
            "stasis_memory_used_bytes{tier=\"disk\"} 0",
            "stasis_memory_used_bytes{tier=\"ram\"} 0",
            "stasis_leftovers{what=\"operation\"} 0",
            "stasis_leftovers{what=\"memory\"} 0",
            "stasis_leftover_memory_bytes 0",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(text.contains("stasis_memory_free_bytes{tier=\"disk\"}"));
        assert!(!text.contains("stasis_memory_free_bytes{tier=\"ram\"}"));
    }
}
