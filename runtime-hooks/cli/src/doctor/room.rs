//! Room in host memory and on disk, and rests of killed operations.

use stasis_config::Settings;
use stasis_engine::container::host_memory::available;
use stasis_engine::image::disk_space;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_linux::error_chain;
use stasis_locate::called;

use super::{fault, ok, warning};
use crate::answer::amount::size;
use crate::doctor::Finding;
use crate::recover::cut_off;

pub(super) fn findings(settings: &Settings, inventory: Option<&Inventory>) -> Vec<Finding> {
    let mut found: Vec<Finding> = left(settings).into_iter().collect();
    let used = inventory.map_or(0, |inventory| inventory.used_bytes.values().sum());
    if let Ok(available) = available() {
        let remedy = "add memory, or checkpoint one container after the other";
        found.push(room("host-memory", "host memory", available, used, remedy));
    }
    if let Some(directory) = settings.gpu_contents.directory()
        && let Ok(Some(available)) = disk_space::free(directory)
    {
        let place = directory.display().to_string();
        let remedy = "stasis gc, or another directory (gpu_contents.directory)";
        found.push(room("no-space", &place, available, used, remedy));
    }
    found
}

/// Compares the room for GPU contents with those that are on GPUs now.
fn room(id: &str, whose: &str, available: u64, used: u64, remedy: &str) -> Finding {
    let (available_text, used_text) = (size(available), size(used));
    let evidence = format!("{available_text} free in {whose}, {used_text} of GPU memory in use");
    match available < used {
        true => warning(id, evidence, remedy),
        false => ok(id.strip_prefix("no-").unwrap_or(id), evidence),
    }
}

fn left(settings: &Settings) -> Option<Finding> {
    let remedy = "stasis recover";
    match cut_off(&settings.paths.state_dir) {
        Ok(left) if left.is_empty() => None,
        Ok(left) => {
            let names = left.iter().map(|undo| called(&undo.id, &undo.root));
            let names: Vec<String> = names.collect();
            let evidence = format!(
                "operations were killed together with their keepers, and these containers stand \
                 still: {}",
                names.join(", ")
            );
            Some(fault("operations", evidence, remedy))
        }
        Err(error) => Some(warning("operations", error_chain(&error), remedy)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn what_is_in_use_has_to_fit() {
        let found = room("no-space", "/memory", 10 << 20, 11 << 20, "remove");
        assert_eq!(found.verdict, Verdict::Warning);
        let evidence = "10.0 MiB free in /memory, 11.0 MiB of GPU memory in use";
        assert_eq!(
            (found.id.as_str(), found.evidence.as_str()),
            ("no-space", evidence)
        );
        let found = room("no-space", "/memory", 10, 10, "remove");
        assert_eq!((found.id.as_str(), found.verdict), ("space", Verdict::Ok));
    }
}
