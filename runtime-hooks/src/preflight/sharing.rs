//! GPU memory that processes share, or that GPUs reach of each other: what this driver saves and
//! cannot restore.
//!
//! Each locked process is asked through its driver's own checkpoint thread
//! ([`crate::gpu_path::survey`]), so what is found is so. From outside, before the lock, it can
//! only be guessed, by what a process looks like ([`nccl`]) and by how much it
//! holds ([`peer_access`]); a driver that was not tried is guessed about.

mod found;
pub(crate) mod nccl;
pub mod peer_access;

use std::io;

use stasis_config::BlockerKind;
use stasis_linux::{ProcessRef, Snapshot};

use crate::container::Container;
use crate::cuda::CudaState;
use crate::cuda::nvml::Inventory;
use crate::cuda::process_set::ProcessStates;
use crate::gpu_path::CopyingDriver;
use crate::gpu_path::survey::Holding;
use crate::preflight::blocker::Finding;
use crate::preflight::{ContainerFacts, find};
use found::findings;
use peer_access::PeerAccess;

/// How it is known what processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// By what can be seen from outside.
    Guessed(PeerAccess),
    /// Exactly, once they are locked.
    AtTheLock,
}

impl Sharing {
    /// Of the processes of a container.
    pub(crate) fn of(copying: &CopyingDriver, container: &Container, of: &ProcessStates) -> Self {
        match copying.knows_at_the_lock(of.iter().map(|(process, _)| process)) {
            true => Self::AtTheLock,
            false => Self::Guessed(PeerAccess::of(container)),
        }
    }

    /// The same, of processes of which so much was found: if that is a guess that would refuse
    /// them, this node's driver is tried first.
    pub(crate) fn once_tried(
        self,
        copying: &CopyingDriver,
        container: &Container,
        of: &ProcessStates,
        found: &mut Vec<Finding>,
    ) {
        if self == Self::AtTheLock || !found.iter().any(is_of_sharing) {
            return;
        }
        copying.try_driver(of.iter().map(|(process, _)| process));
        if Self::of(copying, container, of) == Self::AtTheLock {
            known_later(found);
        }
    }
}

fn is_of_sharing(finding: &Finding) -> bool {
    matches!(finding.kind, BlockerKind::NcclP2p | BlockerKind::PeerAccess)
}

/// What is a guess of these that a checkpoint will not make, since it will know better; the rest
/// stays.
pub(crate) fn known_later(found: &mut Vec<Finding>) -> Vec<Finding> {
    let (guessed, others) = std::mem::take(found).into_iter().partition(is_of_sharing);
    *found = others;
    guessed
}

/// What has been found of locked processes.
#[derive(Debug, Default)]
pub(crate) struct AtTheLock {
    /// The blockers.
    pub(crate) found: Vec<Finding>,
    /// Why some processes could not be asked, which were guessed about then.
    pub(crate) notes: Vec<String>,
}

/// Finds the processes that share GPU memory, or are lost with peer access, among locked ones.
/// `snapshot` has them.
///
/// # Errors
/// Those of [`find`].
pub(crate) fn at_the_lock(
    copying: &CopyingDriver,
    locked: &[ProcessRef],
    container: &Container,
    inventory: &Inventory,
    snapshot: &Snapshot,
) -> io::Result<AtTheLock> {
    let mut seen = AtTheLock::default();
    if !copying.knows_at_the_lock(locked) {
        // It was guessed before.
        return Ok(seen);
    }
    let mut unknown = Vec::new();
    let answers = copying.survey(locked);
    for (process, asked) in &answers {
        match asked {
            Ok(holding) => {
                let others = answers
                    .iter()
                    .filter(|(other, _)| other.pid() != process.pid());
                let others = others.filter_map(|(_, asked)| asked.as_ref().ok());
                seen.found.extend(findings(process, holding, others));
                if holding.may_share_more(inventory.uses(process.pid()).len()) {
                    unknown.push(process.pid());
                }
            }
            Err(error) => {
                let note = format!("what {process} shares is guessed: {error}");
                seen.notes.push(note);
                unknown.push(process.pid());
            }
        }
    }
    unknown.retain(|pid| !seen.found.iter().any(|finding| finding.pid == *pid));
    if !unknown.is_empty() {
        let locked = locked
            .iter()
            .map(|process| (process.clone(), CudaState::Locked));
        let guessed = find(&ContainerFacts {
            snapshot,
            members: &locked.collect(),
            inventory,
            sharing: Sharing::Guessed(PeerAccess::of(container)),
            asked: None,
        })?;
        let of_these = |finding: &Finding| is_of_sharing(finding) && unknown.contains(&finding.pid);
        seen.found.extend(guessed.into_iter().filter(of_these));
    }
    Ok(seen)
}

impl Holding {
    /// Whether a process on so many GPUs has what may be another's although its own GPU can use it,
    /// or contexts that are not found: a program's own (cuCtxCreate).
    fn may_share_more(&self, gpus: usize) -> bool {
        let has_others = self.without_handle.count > self.imported.count;
        has_others || gpus > 1 && self.contexts < 2
    }
}
