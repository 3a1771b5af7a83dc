//! Finds the process and allocation of each import. No call names them: a tag that is written to
//! the allocation is read through the import, while no process can use either.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;

use stasis_injection::imports::{GpuAddress, Import, Members, identify, rehearse};
use stasis_injection::survey::{Allocation, Kind, ProcessGpuMemory};

use super::holding::DEVICE;
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::imports::{AT_ONCE, Share, Visit, by_pair, hand_over};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const BY_DESCRIPTOR: u64 = 1;

/// Finds the memory that these processes share among each other. Nothing is changed that lasts;
/// some imports of each process from each other are rehearsed, elsewhere.
pub(super) fn imported(all: &[(&Visit, &ProcessGpuMemory)]) -> io::Result<Vec<Share>> {
    let members: Vec<_> = all
        .iter()
        .map(|(visit, found)| (visit.visited(), members_of(found)))
        .collect();
    if members.iter().all(|(_, of)| of.candidates.is_empty()) {
        return Ok(Vec::new());
    }
    let owners = identify(&members).map_err(io::Error::other)?;
    let mut shares = Vec::new();
    for ((importer, found), owners) in all.iter().zip(owners) {
        for (allocation, owner) in found.allocations.iter().filter(is_candidate).zip(owners) {
            let Some((owner, index)) = owner else {
                continue;
            };
            shares.push(Share {
                importer: ProcessId::of(&importer.process),
                import: Import {
                    address: allocation.address,
                    bytes: allocation.bytes,
                    access: allocation.access,
                    // The count of NCCL, and of symmetric memory of torch.
                    references: 1,
                    handle: allocation.handle,
                },
                owner: ProcessId::of(&all[owner].0.process),
                owned_at: members[owner].1.own[index],
            });
        }
    }
    refuse_mapped_twice(&shares)?;
    try_each_pair(all, &shares)?;
    Ok(shares)
}

fn members_of(found: &ProcessGpuMemory) -> Members {
    let place = |allocation: &Allocation| GpuAddress {
        address: allocation.address,
        device: allocation.access.trailing_zeros().into(),
    };
    let own = found.allocations.iter().filter(|allocation| {
        is_of_device(allocation)
            && allocation.handle_types & BY_DESCRIPTOR != 0
            && allocation.access != 0
    });
    let candidates = found.allocations.iter().filter(is_candidate);
    Members {
        own: own.map(place).collect(),
        candidates: candidates.map(place).collect(),
    }
}

/// Whether memory may be another process's: its own GPU may use it or not.
fn is_candidate(allocation: &&Allocation) -> bool {
    is_of_device(allocation) && allocation.handle_types == 0 && allocation.access != 0
}

fn is_of_device(allocation: &Allocation) -> bool {
    allocation.kind == Kind::Virtual as u64 && allocation.location_type == DEVICE
}

/// Finds limits of descriptors, security modules and the like before anything is changed: the
/// largest imports of each pair, as many as are made again at a time.
fn try_each_pair(all: &[(&Visit, &ProcessGpuMemory)], shares: &[Share]) -> io::Result<()> {
    let visits = all
        .iter()
        .map(|(visit, _)| (ProcessId::of(&visit.process), *visit));
    hand_over(&visits.collect(), &largest(shares), rehearse)
}

fn largest(shares: &[Share]) -> Vec<Share> {
    let mut pairs = by_pair(shares);
    for shares in pairs.values_mut() {
        shares.sort_unstable_by_key(|share| Reverse(share.import.bytes));
        shares.truncate(AT_ONCE);
    }
    pairs.into_values().flatten().collect()
}

/// Refuses handles that a process has mapped twice: what is left of one after the other was given
/// up is not known, nor that its value may be used again.
fn refuse_mapped_twice(shares: &[Share]) -> io::Result<()> {
    let mut seen = BTreeSet::new();
    match shares
        .iter()
        .find(|share| !seen.insert((share.importer, share.import.handle)))
    {
        None => Ok(()),
        Some(Share {
            importer, import, ..
        }) => Err(io::Error::other(format!(
            "process {} has mapped one import twice, the second time at {:#x}",
            importer.pid, import.address
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(importer: i32, handle: u64) -> Share {
        let id = |pid| ProcessId { pid, start_time: 1 };
        Share {
            importer: id(importer),
            import: Import {
                address: handle << 21,
                bytes: handle,
                access: 1,
                references: 1,
                handle,
            },
            owner: id(9),
            owned_at: GpuAddress {
                address: 0,
                device: 0,
            },
        }
    }

    /// As many as need a descriptor at a time: that there is one for each is tried.
    #[test]
    fn as_many_of_a_pair_are_tried_as_are_made_again_at_a_time() {
        let shares: Vec<Share> = (1..=20)
            .flat_map(|handle| [share(1, handle), share(2, handle)])
            .collect();
        let tried = largest(&shares);
        assert_eq!(tried.len(), 2 * AT_ONCE);
        assert!(
            tried
                .iter()
                .all(|share| share.import.bytes > 20 - AT_ONCE as u64)
        );
    }

    #[test]
    fn a_handle_that_is_mapped_twice_is_refused() {
        assert!(refuse_mapped_twice(&[share(1, 5), share(2, 5), share(1, 6)]).is_ok());
        let refused = refuse_mapped_twice(&[share(1, 5), share(1, 5)]).unwrap_err();
        assert!(
            refused.to_string().contains("process 1 has mapped"),
            "{refused}"
        );
    }
}
