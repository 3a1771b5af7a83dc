//! GPU memory that processes of an image share.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::{GpuAddress, Import};

/// More than the ranks of any job share.
const MOST: usize = 1 << 17;
/// As many references as are counted when an import is given up.
const MOST_REFERENCES: u64 = 64;

/// An allocation of one process that another has imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedAllocation {
    /// The pid of the importer, in the container.
    pub importer: i32,
    /// The place and kind of the import.
    pub import: Import,
    /// The pid of the owner.
    pub owner: i32,
    /// The place of the allocation in the owner.
    pub owned_at: GpuAddress,
}

/// Checks that these are of processes with these pids, and that no call has to be made without end.
/// Addresses are those of a process of the image, which its driver checks.
pub(super) fn check(all: &[SharedAllocation], pids: &BTreeSet<i32>) -> Result<(), String> {
    let is_possible = |shared: &SharedAllocation| {
        let Import {
            bytes,
            access,
            references,
            handle,
            ..
        } = shared.import;
        pids.contains(&shared.importer)
            && pids.contains(&shared.owner)
            && bytes > 0
            && access != 0
            && references <= MOST_REFERENCES
            && handle != 0
    };
    match all.len() <= MOST && all.iter().all(is_possible) {
        true => Ok(()),
        false => {
            Err("it shares memory in a way that cannot be, or of unlisted processes".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> SharedAllocation {
        SharedAllocation {
            importer: 8,
            import: Import {
                address: 0x7f00_0000_0000,
                bytes: 2 << 20,
                access: 0b10,
                references: 1,
                handle: 0x5555_0000_0000,
            },
            owner: 7,
            owned_at: GpuAddress {
                address: 0x7f00_0000_0000,
                device: 0,
            },
        }
    }

    fn changed(change: impl FnOnce(&mut SharedAllocation)) -> Result<(), String> {
        let mut shared = shared();
        change(&mut shared);
        check(&[shared], &BTreeSet::from([7, 8]))
    }

    #[test]
    fn what_is_shared_is_of_listed_processes_and_within_limits() {
        assert!(changed(|_| {}).is_ok());
        assert!(changed(|shared| shared.owner = 9).is_err());
        assert!(changed(|shared| shared.importer = 9).is_err());
        assert!(changed(|shared| shared.import.bytes = 0).is_err());
        assert!(changed(|shared| shared.import.access = 0).is_err());
        assert!(changed(|shared| shared.import.references = 65).is_err());
        assert!(changed(|shared| shared.import.handle = 0).is_err());
        let crowd = vec![shared(); MOST + 1];
        assert!(check(&crowd, &BTreeSet::from([7, 8])).is_err());
    }
}
