//! GPU memory that processes of an image share.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::Import;

use crate::gpu_path::imports::OwnedAt;

/// More than the ranks of any job share.
const MOST: usize = 1 << 17;

/// An allocation of one process that another has imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedAllocation {
    /// The pid of who has imported it, in the container.
    pub importer: i32,
    /// Where, and how.
    pub import: Import,
    /// The pid of whose it is.
    pub owner: i32,
    /// Where that has it.
    pub owned_at: OwnedAt,
}

/// Checks that these are of processes with these pids. Addresses are those of a process of the
/// image, which its driver checks.
pub(super) fn check(all: &[SharedAllocation], pids: &BTreeSet<i32>) -> Result<(), String> {
    let is_listed =
        |shared: &SharedAllocation| pids.contains(&shared.importer) && pids.contains(&shared.owner);
    match all.len() <= MOST && all.iter().all(is_listed) {
        true => Ok(()),
        false => Err("it shares memory of unlisted processes, or too much".to_owned()),
    }
}
