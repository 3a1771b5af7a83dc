//! Memory that processes share is given up before their checkpoint, and shared again before any of
//! them goes on.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use stasis_linux::{ProcessRef, error_chain};

use super::CopyingDriver;
use crate::cuda::process_set::can_be_queried;
use crate::cuda::process_set::initial_state::ProcessId;
use crate::cuda::{CudaError, CudaState};
use crate::gpu_path::imports::{GiveUp, Share, ShareAgain, forget, is_given_up, read, write};
use crate::gpu_path::process::GpuCopy;

/// The most time. An allocation takes 3 ms, and a rank of NCCL has some 50.
const LIMIT: Duration = Duration::from_secs(60);

impl CopyingDriver {
    /// Has locked processes give up the memory that they share, before their checkpoint. Returns
    /// it, and the memory that CHECKPOINTED processes have given up before.
    ///
    /// # Errors
    /// Some memory may be given up: it is shared again before anything is unlocked.
    pub fn give_up_imports(&self, shares: &[Share]) -> io::Result<Vec<Share>> {
        let mut all = self.still_shared()?;
        if shares.is_empty() {
            return Ok(all);
        }
        let importers = opened(shares.iter().map(|share| share.importer))?;
        let asked = self.asked(&importers)?;
        // The program's references of an import that is mapped again, after a failed resume, may
        // not be back: those that were counted before are right.
        let is_recorded = |share: &Share| all.iter().any(|one| one.is_of_one_mapping(share));
        let (again, first): (Vec<Share>, Vec<Share>) =
            shares.iter().copied().partition(is_recorded);
        all.extend_from_slice(&first);
        write(&self.directory, &all)?;
        let job = GpuCopy::GiveUp(GiveUp {
            asked,
            again,
            first,
            records: self.records(),
            directory: self.directory.clone(),
        });
        self.visit::<()>(&job, LIMIT)?;
        read(&self.directory)
    }

    /// The gate: a process that shares memory goes on with all of it, or not at all.
    pub(super) fn shares_as_before(&self, process: &ProcessRef) -> Result<(), CudaError> {
        match is_given_up(&self.directory, process) {
            false => Ok(()),
            true => Err(CudaError::SharedMemoryAway),
        }
    }

    /// Shares all memory again that was given up, once all of those processes are LOCKED. Importers
    /// of memory whose owner has ended stay without it, and behind the gate.
    pub(super) fn share_all_again(&self) -> Result<(), CudaError> {
        let away = |error: io::Error| {
            let why = error_chain(&error);
            self.add_notes(vec![format!("GPU memory is not shared again: {why}")]);
            CudaError::SharedMemoryAway
        };
        let shares = self.still_shared().map_err(away)?.into_iter();
        let (shares, lost): (Vec<Share>, Vec<Share>) =
            shares.partition(|share| is_there(share.owner));
        if !shares.is_empty() {
            // Processes that were not checkpointed after all still have the copying code in them.
            self.state().armed.clear();
            let ids = shares
                .iter()
                .flat_map(|share| [share.importer, share.owner]);
            let members = opened(ids).map_err(away)?;
            self.expect_locked(&members)?;
            self.share_again_among(&members, shares.len())
                .map_err(away)?;
        }
        match lost.is_empty() {
            true => Ok(()),
            false => Err(CudaError::SharedMemoryLost),
        }
    }

    fn expect_locked(&self, processes: &[ProcessRef]) -> Result<(), CudaError> {
        for process in processes {
            // The driver would never answer about a stopped one.
            let may_ask = matches!(can_be_queried(process), Ok(true));
            if !may_ask || self.driver.state(process)? != CudaState::Locked {
                return Err(CudaError::SharedMemoryAway);
            }
        }
        Ok(())
    }

    fn share_again_among(&self, members: &[ProcessRef], count: usize) -> io::Result<()> {
        let began = Instant::now();
        let job = GpuCopy::ShareAgain(ShareAgain {
            asked: self.asked(members)?,
            records: self.records(),
            directory: self.directory.clone(),
        });
        self.visit::<()>(&job, LIMIT)?;
        let took = began.elapsed().as_secs_f64();
        self.add_notes(vec![format!(
            "{count} allocations of GPU memory are shared again ({took:.3} s)"
        )]);
        Ok(())
    }

    /// Returns the memory that is given up, without that of importers that have ended.
    fn still_shared(&self) -> io::Result<Vec<Share>> {
        let recorded = read(&self.directory)?;
        let shares: Vec<Share> = recorded
            .iter()
            .filter(|share| is_there(share.importer))
            .copied()
            .collect();
        if shares.is_empty() && !recorded.is_empty() {
            forget(&self.directory)?;
        } else if shares.len() < recorded.len() {
            write(&self.directory, &shares)?;
        }
        Ok(shares)
    }
}

/// Whether a process lives. A process that cannot be looked at may.
fn is_there(process: ProcessId) -> bool {
    process.open().map_or(true, |process| {
        process.is_some_and(|process| !process.is_gone())
    })
}

/// Opens each process once.
fn opened(ids: impl Iterator<Item = ProcessId>) -> io::Result<Vec<ProcessRef>> {
    let ids: BTreeSet<ProcessId> = ids.collect();
    let each = ids.into_iter().map(|id| {
        let process = id.open()?;
        process.ok_or_else(|| io::Error::other(format!("process {} has ended", id.pid)))
    });
    each.collect()
}
