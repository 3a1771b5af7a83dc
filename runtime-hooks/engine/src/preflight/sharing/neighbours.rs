//! Ranks on GPUs that programs outside of their container use, too.
//!
//! While ranks are locked one of them may wait on its GPU for another. With a second job over
//! NVLink on the same GPUs the driver's switch between their contexts timed out then (Xid 109), and
//! all of them were lost: both times that it was tried (two H200, driver 580.159). A job that had
//! its GPUs alone never met it.

use std::collections::BTreeSet;

use stasis_config::BlockerKind;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_linux::ProcessRef;

use crate::preflight::blocker::Finding;

/// Returns a blocker for each rank on a GPU that a process outside of the container uses.
/// `members` are the container's CUDA processes.
pub(super) fn findings<'p>(
    ranks: impl Iterator<Item = &'p ProcessRef>,
    members: &BTreeSet<i32>,
    inventory: &Inventory,
) -> Vec<Finding> {
    let finding = |rank: &ProcessRef| {
        Some(Finding {
            kind: BlockerKind::SharedGpu,
            pid: rank.pid(),
            name: rank.name().to_owned(),
            evidence: evidence(rank.pid(), members, inventory)?,
        })
    };
    ranks.filter_map(finding).collect()
}

fn evidence(rank: i32, members: &BTreeSet<i32>, inventory: &Inventory) -> Option<String> {
    let own: Vec<_> = inventory.uses(rank).iter().map(|used| used.uuid).collect();
    let mut others = inventory.processes.iter();
    others.find_map(|(pid, uses)| {
        let shared = uses.iter().find(|used| own.contains(&used.uuid))?;
        let is_outside = !members.contains(pid);
        is_outside.then(|| {
            format!(
                "process {pid} outside of the container uses {}",
                shared.uuid
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use stasis_gpu::cuda::GpuUuid;
    use stasis_gpu::cuda::nvml::ListedUse;

    use super::*;

    fn used(gpu: u8) -> ListedUse {
        ListedUse {
            uuid: GpuUuid::from_bytes([gpu; 16]),
            memory_bytes: Some(1),
        }
    }

    #[test]
    fn a_process_outside_of_the_container_counts_on_the_same_gpu_alone() {
        let inventory = |other: u8| Inventory {
            processes: [
                (7, vec![used(1)]),
                (8, vec![used(2)]),
                (9, vec![used(other)]),
            ]
            .into(),
            ..Inventory::default()
        };
        let members = BTreeSet::from([7, 8]);
        assert_eq!(evidence(7, &members, &inventory(3)), None);
        assert_eq!(evidence(7, &members, &inventory(2)), None);
        let found = evidence(8, &members, &inventory(2)).unwrap();
        assert!(found.starts_with("process 9 outside"), "{found}");
        assert_eq!(evidence(8, &BTreeSet::from([7, 8, 9]), &inventory(2)), None);
    }
}
