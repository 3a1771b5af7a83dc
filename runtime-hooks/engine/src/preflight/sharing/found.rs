//! GPU memory of a process that the driver would not restore.

use stasis_config::BlockerKind;
use stasis_gpu::gpu_path::survey::{Holding, Pieces};
use stasis_linux::ProcessRef;

use crate::preflight::blocker::Finding;

/// From this size on memory that another GPU can reach is not restored: the owner's restore fails
/// with 400 or INVALID_VALUE (driver 580.159, two H100 and two H200; 448 MiB are restored).
const LOST_WITH_PEERS: u64 = 512 << 20;

/// Imports of this size cannot be made again: after a restore their owner cannot export them (1,
/// driver 580.159).
const LOST_WHEN_SHARED: u64 = 512 << 20;

/// Returns the blockers of a process, given the memory of those beside it.
pub(super) fn findings<'h>(
    process: &ProcessRef,
    holding: &Holding,
    mut others: impl Iterator<Item = &'h Holding>,
) -> Vec<Finding> {
    // Variables of modules look the same, and have the size of no other process's allocation.
    let is_of_another = |other: &Holding| !other.own_sizes.is_disjoint(&holding.legacy_sizes);
    let legacy = match others.any(is_of_another) {
        true => holding.legacy,
        false => Pieces::default(),
    };
    let shared = [
        (
            holding.imported,
            "allocations of GPU memory imported from no known process of the container",
        ),
        (
            too_large(holding.shared),
            "allocations of other processes' GPU memory imported, of which one has 512 MiB or more",
        ),
        (
            holding.host,
            "allocations of the driver's host memory shared",
        ),
        (
            legacy,
            "allocations of other processes opened by cudaIpcOpenMemHandle",
        ),
        (
            holding.unknown,
            "allocations of a kind that libcuda tells nothing of",
        ),
    ];
    let shared = shared.into_iter().filter(|(pieces, _)| pieces.count > 0);
    let shared: Vec<String> = shared.map(|(pieces, what)| told(pieces, what)).collect();
    let shared = (!shared.is_empty()).then(|| format!("it has {}", shared.join(", and ")));
    let all = [
        (BlockerKind::NcclP2p, shared),
        (BlockerKind::PeerAccess, peers(holding)),
    ];
    let found = all.into_iter().filter_map(|(kind, evidence)| {
        Some(Finding {
            kind,
            pid: process.pid(),
            name: process.name().to_owned(),
            evidence: evidence?,
        })
    });
    found.collect()
}

/// Returns these pieces if one of them is too large.
fn too_large(pieces: Pieces) -> Pieces {
    match pieces.largest >= LOST_WHEN_SHARED {
        true => pieces,
        false => Pieces::default(),
    }
}

fn told(pieces: Pieces, what: &str) -> String {
    let Pieces {
        count,
        bytes,
        first,
        ..
    } = pieces;
    let mib = bytes.div_ceil(1 << 20);
    format!("{count} {what} ({mib} MiB, the first at {first:#x})")
}

/// Returns the evidence of an allocation that is lost since another GPU reaches it.
fn peers(holding: &Holding) -> Option<String> {
    let mib = |pieces: Pieces| pieces.largest >> 20;
    let by_others = holding.reachable_by_others;
    if by_others.largest >= LOST_WITH_PEERS {
        let size = mib(by_others);
        return Some(format!(
            "another GPU has access to an allocation of {size} MiB of it"
        ));
    }
    let (from, to) = holding.peers?;
    let by_peers = holding.reachable_by_peers;
    (by_peers.largest >= LOST_WITH_PEERS).then(|| {
        let size = mib(by_peers);
        format!(
            "its GPU {from} has peer access to its GPU {to}, and it has an allocation of {size} MiB"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ProcessRef {
        let pid = i32::try_from(std::process::id()).unwrap();
        ProcessRef::open(pid).unwrap().unwrap()
    }

    fn pieces(count: u64, mib: u64) -> Pieces {
        Pieces {
            count,
            bytes: count * (mib << 20),
            largest: mib << 20,
            first: 0x7f00_0000_0000,
        }
    }

    fn kinds(holding: &Holding) -> Vec<(BlockerKind, String)> {
        let owner = Holding {
            own_sizes: [64 << 20].into(),
            ..Holding::default()
        };
        let found = findings(&own(), holding, [&owner].into_iter());
        found
            .into_iter()
            .map(|finding| (finding.kind, finding.evidence))
            .collect()
    }

    #[test]
    fn what_is_shared_is_named_with_its_size_and_place() {
        let holding = Holding {
            imported: pieces(96, 2),
            legacy: pieces(1, 64),
            legacy_sizes: [64 << 20].into(),
            ..Holding::default()
        };
        let evidence = "it has 96 allocations of GPU memory imported from no known process of the \
                        container (192 MiB, the first at 0x7f0000000000), and 1 allocations of \
                        other processes opened by cudaIpcOpenMemHandle (64 MiB, the first at 0x7f0000000000)";
        assert_eq!(
            kinds(&holding),
            [(BlockerKind::NcclP2p, evidence.to_owned())]
        );
    }

    #[test]
    fn what_is_shared_in_the_container_is_given_up_unless_it_is_too_large() {
        let with = |mib| Holding {
            shared: pieces(2, mib),
            ..Holding::default()
        };
        assert_eq!(kinds(&with(511)), []);
        let evidence = "it has 2 allocations of other processes' GPU memory imported, of which one \
                        has 512 MiB or more (1024 MiB, the first at 0x7f0000000000)";
        assert_eq!(
            kinds(&with(512)),
            [(BlockerKind::NcclP2p, evidence.to_owned())]
        );
    }

    #[test]
    fn a_variable_of_a_module_is_nobody_elses_memory() {
        let holding = Holding {
            legacy: pieces(1, 1),
            legacy_sizes: [1 << 20].into(),
            ..Holding::default()
        };
        assert_eq!(kinds(&holding), []);
    }

    #[test]
    fn peer_access_needs_a_large_allocation_to_lose_one() {
        let with = |mib, peers| Holding {
            reachable_by_peers: pieces(1, mib),
            peers,
            ..Holding::default()
        };
        assert_eq!(kinds(&with(448, Some((0, 1)))), []);
        assert_eq!(kinds(&with(8192, None)), []);
        let evidence =
            "its GPU 0 has peer access to its GPU 1, and it has an allocation of 512 MiB";
        let lost = kinds(&with(512, Some((0, 1))));
        assert_eq!(lost, [(BlockerKind::PeerAccess, evidence.to_owned())]);
        let by_others = Holding {
            reachable_by_others: pieces(1, 512),
            ..Holding::default()
        };
        assert_eq!(kinds(&by_others).len(), 1);
    }
}
