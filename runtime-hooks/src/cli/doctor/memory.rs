//! The kinds of the machine's memory that stasis fills, and whose they are.

use std::collections::BTreeMap;

use stasis_linux::numa::NumaNode;
use stasis_linux::procfs::MemInfo;

use super::warning;
use crate::cli::answer::amount::size;
use crate::cli::doctor::Finding;
use crate::cuda::nvml::Inventory;

/// More than this part of the memory is missed.
const MISSED: u64 = 8;

pub(super) fn findings(inventory: Option<&Inventory>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(MemInfo::read().ok().and_then(|info| reserved(&info)));
    let used = inventory.map(used_near).unwrap_or_default();
    found.extend(used.into_iter().filter_map(|(node, used)| {
        let memory = node.memory_bytes().ok()?;
        too_small(node, memory, used)
    }));
    found
}

/// Nothing of stasis uses hugetlbfs, and what is reserved for it is nobody else's.
fn reserved(info: &MemInfo) -> Option<Finding> {
    let (free, total) = (info.free_huge_pages()?, info.bytes("MemTotal")?);
    (free > total / MISSED).then(|| {
        warning(
            "huge-pages-reserved",
            format!(
                "{} of {} are reserved for huge pages that nobody uses: GPU contents do not go \
                 there",
                size(free),
                size(total)
            ),
            "reserve no more than programs use (vm.nr_hugepages, hugepages= at boot)",
        )
    })
}

/// The GPU memory that is in use near to each node, in bytes.
fn used_near(inventory: &Inventory) -> BTreeMap<NumaNode, u64> {
    let mut used = BTreeMap::new();
    for (uuid, facts) in &inventory.facts {
        if let Some(node) = facts.numa_node {
            let of_gpu = inventory.used_bytes.get(uuid).copied().unwrap_or_default();
            *used.entry(node).or_default() += of_gpu;
        }
    }
    used
}

fn too_small(node: NumaNode, memory: u64, used: u64) -> Option<Finding> {
    (memory < used).then(|| {
        warning(
            "numa-memory",
            format!(
                "{} are in use on GPUs near to {node}, which has {} of memory: the rest goes to \
                 another node, and copies are slower",
                size(used),
                size(memory)
            ),
            "spread the work over GPUs of all nodes, or add memory to that node",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_and_free_is_missed() {
        let info = |free: u64| {
            let text = format!(
                "MemTotal: 81920 kB\nHugePages_Total: 9\nHugePages_Free: {free}\nHugepagesize: \
                 2048 kB\n"
            );
            reserved(&MemInfo::from_text(text.into_bytes()))
        };
        assert_eq!(info(5), None);
        let evidence = info(6).unwrap().evidence;
        assert!(evidence.starts_with("12.0 MiB of 80.0 MiB"), "{evidence}");
    }
}
