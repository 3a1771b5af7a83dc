//! Room in host memory and on disk, and what operations have left.

use stasis_config::{MemoryTier, Settings};
use stasis_linux::error_chain;

use super::warning;
use crate::bulk_memory::retention::why_left_over;
use crate::cli::machine::Finding;
use crate::cli::memory::list;
use crate::cli::recover::left_behind;
use crate::container::host_memory::available;
use crate::cuda::nvml::Inventory;
use crate::image::disk_space;

const MIB: u64 = 1 << 20;

pub(super) fn findings(settings: &Settings, inventory: Option<&Inventory>) -> Vec<Finding> {
    let mut found: Vec<Finding> = left(settings)
        .into_iter()
        .chain(unneeded(settings))
        .collect();
    let used = inventory.map_or(0, |inventory| inventory.used_bytes.values().sum());
    if let Ok(available) = available() {
        found.extend(too_little(
            "host-memory",
            "host memory",
            available,
            used,
            "not all containers can be checkpointed at once; add memory, or one after the other",
        ));
    }
    let directory = &settings.bulk_memory.directory;
    if settings.bulk_memory.tier != MemoryTier::Portable
        && let Ok(Some(available)) = disk_space::free(directory)
    {
        found.extend(too_little(
            "no-space",
            &directory.display().to_string(),
            available,
            used,
            "stasis memory prune, or another disk (bulk_memory.directory)",
        ));
    }
    found
}

fn too_little(id: &str, whose: &str, available: u64, used: u64, remedy: &str) -> Option<Finding> {
    (available < used).then(|| {
        let evidence = format!(
            "{} MiB of GPU memory are in use, and {whose} has {} MiB",
            used / MIB,
            available / MIB
        );
        warning(id, evidence, remedy)
    })
}

fn left(settings: &Settings) -> Option<Finding> {
    let remedy = "stasis recover --all";
    match left_behind(&settings.paths.state_dir) {
        Ok(left) if left.is_empty() => None,
        Ok(left) => {
            let ids: Vec<_> = left.iter().map(|undo| undo.id.as_str()).collect();
            let evidence = format!(
                "operations were killed, and are not undone yet: {}",
                ids.join(", ")
            );
            Some(warning("operations", evidence, remedy))
        }
        Err(error) => Some(warning("operations", error_chain(&error), remedy)),
    }
}

/// Bulk memory that nobody will ask for.
fn unneeded(settings: &Settings) -> Option<Finding> {
    let remedy = "stasis memory prune lists it, and with --force removes it";
    let kept = match list(settings) {
        Ok(kept) => kept,
        Err(error) => {
            return Some(warning(
                "memory-left",
                error_chain(&error),
                "stasis memory list",
            ));
        }
    };
    let unneeded = kept.iter().filter(|kept| why_left_over(kept).is_some());
    let (count, bytes) = unneeded.fold((0, 0), |(count, bytes), kept| {
        (count + 1, bytes + kept.own_bytes)
    });
    (count > 0).then(|| {
        let evidence = format!(
            "no image needs the bulk memory of {count} checkpoints, {} MiB",
            bytes / MIB
        );
        warning("memory-left", evidence, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_has_to_fit() {
        assert!(too_little("host-memory", "host memory", 10, 10, "").is_none());
        let found = too_little("no-space", "/memory", 10 * MIB, 11 * MIB, "").unwrap();
        let evidence = "11 MiB of GPU memory are in use, and /memory has 10 MiB";
        assert_eq!(found.evidence, evidence);
    }
}
