//! A program that locks all that it maps (mlockall(2)) and may not lock much: where GPU contents go
//! into memory of its own, the driver's mmap(2) fails at its limit.

use stasis_linux::process::LockedMemory;

use super::Process;
use crate::cli::answer::amount::size;
use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;
use crate::cuda::nvml::Inventory;

pub(super) fn finding(name: &str, process: &Process, inventory: &Inventory) -> Option<Finding> {
    let uses = inventory.uses(process.held.pid()).into_iter();
    let held = uses.filter_map(|used| used.memory_bytes).sum();
    of(name, process.locked?, held)
}

fn of(name: &str, locked: LockedMemory, on_gpu: u64) -> Option<Finding> {
    let limit = locked.limit?;
    let is_short = locked.bytes > 0 && limit < locked.bytes.saturating_add(on_gpu);
    is_short.then(|| {
        warning(
            "memlock",
            format!(
                "{name} has locked {} of its memory and may lock {}: its {} on GPUs may not fit \
                 beside that",
                size(locked.bytes),
                size(limit),
                size(on_gpu)
            ),
            "start it with --ulimit memlock=-1, or with CAP_IPC_LOCK",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_locks_has_to_have_room() {
        let is_found = |bytes, limit| of("job", LockedMemory { bytes, limit }, 100).is_some();
        assert!(is_found(1, Some(100)));
        assert!(!is_found(1, Some(101)));
        assert!(!is_found(0, Some(8)), "it locks nothing");
        assert!(!is_found(1, None), "nothing limits it");
    }
}
