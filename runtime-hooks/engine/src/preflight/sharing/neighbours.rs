//! Ranks on GPUs that other processes use, too.
//!
//! After a restore, also in place, driver 580 no longer interrupts a kernel of the process. If it
//! runs for 4.4 s while another process waits for the GPU, the switch between their contexts times
//! out (Xid 109), and the process is lost (H200, by the driver's calls alone; a context that is
//! made afterwards is interrupted as ever). Kernels of ranks wait for each other, at times for
//! longer: two jobs over NVLink on the same GPUs were lost both times, and ranks that shared one
//! GPU each time.

use std::collections::BTreeSet;

use stasis_config::BlockerKind;
use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::nvml::{Inventory, ListedUse};
use stasis_linux::ProcessRef;

use crate::preflight::blocker::Finding;

/// Returns a blocker for each rank on a GPU that a process outside of the container uses.
/// `members` are the container's CUDA processes.
pub(super) fn findings<'p>(
    ranks: impl Iterator<Item = &'p ProcessRef>,
    members: &BTreeSet<i32>,
    inventory: &Inventory,
) -> Vec<Finding> {
    let found = |rank: &ProcessRef| {
        let evidence = evidence(rank.pid(), members, inventory)?;
        Some(finding(rank, evidence))
    };
    ranks.filter_map(found).collect()
}

/// Returns a blocker for a process if another one with which it shares memory uses the same GPU.
pub(super) fn of_sharing(
    process: &ProcessRef,
    others: impl IntoIterator<Item = i32>,
    inventory: &Inventory,
) -> Option<Finding> {
    let own = inventory.uses(process.pid());
    others.into_iter().find_map(|other| {
        let same = same_gpu(&inventory.uses(other), &own)?;
        let evidence =
            format!("process {other}, with which it shares GPU memory, also uses {same}");
        Some(finding(process, evidence))
    })
}

fn finding(rank: &ProcessRef, evidence: String) -> Finding {
    Finding {
        kind: BlockerKind::SharedGpu,
        pid: rank.pid(),
        name: rank.name().to_owned(),
        evidence,
    }
}

/// Returns the first GPU of `listed` that `others` have, too.
fn same_gpu(others: &[ListedUse], listed: &[ListedUse]) -> Option<GpuUuid> {
    let mut listed = listed.iter().map(|used| used.uuid);
    listed.find(|uuid| others.iter().any(|used| used.uuid == *uuid))
}

fn evidence(rank: i32, members: &BTreeSet<i32>, inventory: &Inventory) -> Option<String> {
    let own = inventory.uses(rank);
    let mut others = inventory.processes.iter();
    others.find_map(|(pid, uses)| {
        let shared = same_gpu(&own, uses)?;
        let is_outside = !members.contains(pid);
        is_outside.then(|| format!("process {pid} outside of the container uses {shared}"))
    })
}

#[cfg(test)]
mod tests {
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
