//! GPU memory that processes share, or that GPUs reach of each other, which this driver saves and
//! cannot restore, unless it is given up before ([`stasis_gpu::gpu_path::imports`]).
//!
//! Each locked process is asked through its driver's own checkpoint thread
//! ([`stasis_gpu::gpu_path::survey`]), whose answers are exact. From outside, before the lock, it
//! can only be guessed, by the signs of a process ([`nccl`]) and by how much memory it holds
//! ([`peer_access`]); so it is for a driver that has not passed its self-test.

mod found;
pub(crate) mod nccl;
mod neighbours;
pub mod peer_access;

use std::io;

use stasis_config::BlockerKind;
use stasis_gpu::cuda::CudaState;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_gpu::gpu_path::CopyingDriver;
use stasis_gpu::gpu_path::imports::Share;
use stasis_gpu::gpu_path::survey::{Holding, Surveyed};
use stasis_linux::{ProcessRef, Snapshot};

use crate::container::Container;
use crate::preflight::blocker::Finding;
use crate::preflight::{ContainerFacts, find};
use found::findings;
use peer_access::PeerAccess;

/// How the GPU memory that processes share is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// By signs that can be seen from outside.
    Guessed(PeerAccess),
    /// Exactly, once the processes are locked.
    AtTheLock,
}

impl Sharing {
    /// Returns how it is found for the processes of a container.
    pub fn of(copying: &CopyingDriver, container: &Container, of: &ProcessStates) -> Self {
        match copying.knows_at_the_lock(of.iter().map(|(process, _)| process)) {
            true => Self::AtTheLock,
            false => Self::Guessed(PeerAccess::of(container)),
        }
    }

    /// Tries this node's driver if it was not, since guesses miss what shows no sign, and removes
    /// them if the lock will bring exact answers.
    pub(crate) fn once_tried(
        self,
        copying: &CopyingDriver,
        container: &Container,
        of: &ProcessStates,
        found: &mut Vec<Finding>,
    ) {
        if self == Self::AtTheLock {
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

/// Removes the guesses that a checkpoint will not make, since it will know better, and returns
/// them; the rest stays.
pub fn known_later(found: &mut Vec<Finding>) -> Vec<Finding> {
    let (guessed, others) = std::mem::take(found).into_iter().partition(is_of_sharing);
    *found = others;
    guessed
}

/// The findings about locked processes.
#[derive(Debug, Default)]
pub(crate) struct AtTheLock {
    /// The blockers.
    pub(crate) found: Vec<Finding>,
    /// The memory that they share among each other, and give up for their checkpoint.
    pub(crate) shares: Vec<Share>,
    /// Facts that could not be known, and were guessed then.
    pub(crate) notes: Vec<String>,
}

/// Finds what locked processes share, and those that are lost with it or with peer access.
/// `snapshot` has them.
///
/// # Errors
/// As of [`find`]. Also if a process that could be asked has not answered: guessing could lose it.
pub(crate) fn at_the_lock(
    copying: &CopyingDriver,
    locked: &[ProcessRef],
    container: &Container,
    inventory: &Inventory,
    snapshot: &Snapshot,
) -> io::Result<AtTheLock> {
    let mut seen = AtTheLock::default();
    let unknown = match copying.knows_at_the_lock(locked) {
        true => {
            let locked = copying.locked_of(locked)?;
            let surveyed = copying.survey(&locked)?;
            seen.take(&locked, surveyed, inventory)
        }
        // The guesses of before were dropped.
        false if copying.was_to_survey() => {
            let unknown = "the build of libcuda that a process has can no longer be read, or has no \
                           self-test on this node any more";
            return Err(io::Error::other(unknown));
        }
        false => locked.iter().map(ProcessRef::pid).collect(),
    };
    if !unknown.is_empty() {
        let members = locked.iter();
        let members = members.map(|process| (process.clone(), CudaState::Locked));
        let guessed = find(&ContainerFacts {
            snapshot,
            members: &members.collect(),
            inventory,
            sharing: Sharing::Guessed(PeerAccess::of(container)),
            asked: None,
        })?;
        let of_these = |finding: &Finding| is_of_sharing(finding) && unknown.contains(&finding.pid);
        seen.found.extend(guessed.into_iter().filter(of_these));
    }
    Ok(seen)
}

impl AtTheLock {
    /// Takes the answers of these; returns the pids of those whose answers are incomplete.
    fn take(
        &mut self,
        locked: &[ProcessRef],
        surveyed: Surveyed,
        inventory: &Inventory,
    ) -> Vec<i32> {
        let Surveyed { held, shares } = surveyed;
        let mut unknown = Vec::new();
        for (at, (process, asked)) in locked.iter().zip(&held).enumerate() {
            let others = held.iter().enumerate().filter(|(other, _)| *other != at);
            let others = others.filter_map(|(_, asked)| asked.as_ref().ok());
            match asked {
                Ok(holding) => {
                    self.found.extend(findings(process, holding, others));
                    let gpus = inventory.uses(process.pid()).len();
                    if may_have_unseen_contexts(holding, gpus) {
                        unknown.push(process.pid());
                    }
                }
                Err(error) => {
                    let note = format!("what {process} shares is guessed: {error}");
                    self.notes.push(note);
                    unknown.push(process.pid());
                }
            }
        }
        for process in locked {
            let id = ProcessId::of(process);
            let others = shares.iter().filter_map(|share| match share {
                Share {
                    importer, owner, ..
                } if *importer == id => Some(owner.pid),
                Share {
                    importer, owner, ..
                } if *owner == id => Some(importer.pid),
                _ => None,
            });
            self.found
                .extend(neighbours::of_sharing(process, others, inventory));
        }
        self.shares = shares;
        unknown.retain(|pid| !self.found.iter().any(|finding| finding.pid == *pid));
        unknown
    }
}

/// Whether a process on this many GPUs may have contexts that are not found: a program's own
/// (cuCtxCreate). What these have access to is not known.
fn may_have_unseen_contexts(holding: &Holding, gpus: usize) -> bool {
    (holding.contexts as usize) < gpus
}
