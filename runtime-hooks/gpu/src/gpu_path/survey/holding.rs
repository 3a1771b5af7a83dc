//! GPU memory of a process that the driver may not be able to restore.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stasis_injection::survey::{Allocation, Kind, ProcessGpuMemory};

/// `CU_MEM_LOCATION_TYPE_DEVICE`: other memory of virtual memory management is the host's.
pub(super) const DEVICE: u64 = 1;

/// The least bytes of a buffer that processes share: a variable is smaller.
const LEAST: u64 = 64 << 10;
/// More different sizes than any job has.
const MOST_SIZES: usize = 512;

/// Some allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pieces {
    /// Their number.
    pub count: u64,
    /// The bytes of all together.
    pub bytes: u64,
    /// The bytes of the largest one.
    pub largest: u64,
    /// The address of the first one.
    pub first: u64,
}

/// The memory of a process, by its fate in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holding {
    /// Memory imported from another process of the survey.
    pub shared: Pieces,
    /// Memory of a GPU that belongs to no process of the survey, imported as virtual memory: its
    /// own GPU may not use it here.
    pub imported: Pieces,
    /// Host memory of the driver's without a handle, which NCCL's ranks share.
    pub host: Pieces,
    /// Memory opened by cuIpcOpenMemHandle, or a variable of a module, which looks the same.
    pub legacy: Pieces,
    /// The sizes of these allocations, in bytes.
    pub legacy_sizes: BTreeSet<u64>,
    /// The sizes of memory that another process could open in this way.
    pub own_sizes: BTreeSet<u64>,
    /// Memory of a kind that libcuda reports nothing of.
    pub unknown: Pieces,
    /// Memory of cuMemAlloc, and of pools.
    pub reachable_by_peers: Pieces,
    /// Virtual memory, and memory of pools, that another GPU than its own has access to.
    pub reachable_by_others: Pieces,
    /// The number of primary contexts.
    pub contexts: u32,
    /// The first pair of devices of which one has access to the memory of the other.
    pub peers: Option<(u32, u32)>,
}

impl Pieces {
    fn add(&mut self, allocation: &Allocation) {
        if self.count == 0 {
            self.first = allocation.address;
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(allocation.bytes);
        self.largest = self.largest.max(allocation.bytes);
    }
}

impl Holding {
    /// Sorts all allocations of a process; those at `shared` are of other processes of the survey.
    #[must_use]
    pub fn of(found: &ProcessGpuMemory, shared: &BTreeSet<u64>) -> Self {
        let mut holding = Self {
            contexts: found.active.count_ones(),
            peers: first_pair(&found.peers),
            ..Self::default()
        };
        for allocation in &found.allocations {
            match shared.contains(&allocation.address) {
                true => holding.shared.add(allocation),
                false => holding.add(allocation),
            }
        }
        holding
    }

    fn add(&mut self, allocation: &Allocation) {
        let Allocation { kind, access, .. } = *allocation;
        if kind == Kind::Virtual as u64 {
            self.add_virtual(allocation);
        } else if kind == Kind::LegacyImport as u64 && allocation.bytes >= LEAST {
            self.legacy.add(allocation);
            keep(&mut self.legacy_sizes, allocation.bytes);
        } else if kind == Kind::Ordinary as u64 {
            self.reachable_by_peers.add(allocation);
            keep(&mut self.own_sizes, allocation.bytes);
        } else if kind == Kind::Pool as u64 {
            self.reachable_by_peers.add(allocation);
            if access.count_ones() > 1 {
                self.reachable_by_others.add(allocation);
            }
        } else if kind == Kind::Unknown as u64 {
            self.unknown.add(allocation);
        }
    }

    fn add_virtual(&mut self, allocation: &Allocation) {
        let is_of_device = allocation.location_type == DEVICE;
        let own = match (is_of_device, u32::try_from(allocation.location)) {
            (true, Ok(device)) => 1_u64.checked_shl(device).unwrap_or(0),
            _ => 0,
        };
        let has_access = allocation.access & own != 0;
        match (allocation.handle_types, is_of_device) {
            (0, false) => self.host.add(allocation),
            (0, true) if !has_access && allocation.access != 0 => self.imported.add(allocation),
            _ => {}
        }
        if has_access && allocation.access & !own != 0 {
            self.reachable_by_others.add(allocation);
        }
    }
}

fn keep(sizes: &mut BTreeSet<u64>, bytes: u64) {
    if bytes >= LEAST && sizes.len() < MOST_SIZES {
        sizes.insert(bytes);
    }
}

fn first_pair(peers: &[u64]) -> Option<(u32, u32)> {
    let mut each = (0..).zip(peers);
    each.find_map(|(device, peers)| (*peers != 0).then(|| (device, peers.trailing_zeros())))
}

#[cfg(test)]
mod tests {
    use stasis_injection::survey::DEVICES;

    use super::*;

    fn holding(allocations: &[Allocation]) -> Holding {
        with_shared(allocations, &[])
    }

    fn with_shared(allocations: &[Allocation], shared: &[u64]) -> Holding {
        let found = ProcessGpuMemory {
            allocations: allocations.to_vec(),
            active: 0b11,
            peers: [0; DEVICES],
        };
        Holding::of(&found, &shared.iter().copied().collect())
    }

    /// Makes virtual memory on GPU 0.
    fn of_gpu_0(handle_types: u64, access: u64) -> Allocation {
        Allocation {
            address: 0x7f00_0000_0000,
            bytes: 2 << 20,
            kind: Kind::Virtual as u64,
            location_type: DEVICE,
            location: 0,
            handle_types,
            access,
            handle: 0,
        }
    }

    #[test]
    fn memory_of_another_gpu_without_a_handle_is_imported() {
        let import = holding(&[of_gpu_0(0, 0b10), of_gpu_0(1, 0b10)]);
        assert_eq!(import.imported.count, 1);
        let own = holding(&[of_gpu_0(0, 0b01), of_gpu_0(0, 0b11), of_gpu_0(0, 0)]);
        assert_eq!(own.imported.count, 0);
        assert_eq!(own.reachable_by_others.count, 1);
    }

    #[test]
    fn what_is_known_to_be_shared_is_nothing_else() {
        let import = of_gpu_0(0, 0b10);
        let known = with_shared(&[import], &[import.address]);
        assert_eq!((known.shared.count, known.imported.count), (1, 0));
    }

    /// Memory of a GPU that the process does not see.
    #[test]
    fn a_location_that_is_no_device_of_it_has_no_access() {
        let far = Allocation {
            location: u64::from(u32::MAX),
            ..of_gpu_0(0, 0b01)
        };
        assert_eq!(holding(&[far]).imported.count, 1);
    }

    #[test]
    fn pieces_say_how_much_and_where() {
        let second = Allocation {
            address: 0x7f00_0020_0000,
            bytes: 4 << 20,
            ..of_gpu_0(0, 0b10)
        };
        let Pieces {
            count,
            bytes,
            largest,
            first,
        } = holding(&[of_gpu_0(0, 0b10), second]).imported;
        assert_eq!((count, bytes, largest), (2, 6 << 20, 4 << 20));
        assert_eq!(first, 0x7f00_0000_0000);
    }

    #[test]
    fn the_first_pair_of_peers_is_named() {
        let mut peers = [0; DEVICES];
        assert_eq!(first_pair(&peers), None);
        peers[1] = 0b101;
        assert_eq!(first_pair(&peers), Some((1, 0)));
    }
}
