//! Room in host memory and on disk, and rests of killed operations.

use stasis_config::Settings;
use stasis_engine::container::host_memory::available;
use stasis_engine::image::disk_space;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_linux::error_chain;

use super::{fault, warning};
use crate::doctor::Finding;
use crate::recover::cut_off;

const MIB: u64 = 1 << 20;

pub(super) fn findings(settings: &Settings, inventory: Option<&Inventory>) -> Vec<Finding> {
    let mut found: Vec<Finding> = left(settings).into_iter().collect();
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
    if let Some(directory) = settings.gpu_contents.directory()
        && let Ok(Some(available)) = disk_space::free(directory)
    {
        found.extend(too_little(
            "no-space",
            &directory.display().to_string(),
            available,
            used,
            "stasis gc, or another directory (gpu_contents.directory)",
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
    let remedy = "stasis recover";
    match cut_off(&settings.paths.state_dir) {
        Ok(left) if left.is_empty() => None,
        Ok(left) => {
            let ids: Vec<_> = left.iter().map(|undo| undo.id.as_str()).collect();
            let evidence = format!(
                "operations were killed, and their keepers, too; what they had begun stands still: \
                 {}",
                ids.join(", ")
            );
            Some(fault("operations", evidence, remedy))
        }
        Err(error) => Some(warning("operations", error_chain(&error), remedy)),
    }
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
