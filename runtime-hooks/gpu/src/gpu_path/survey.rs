//! The GPU memory that locked processes share, or can be lost with: the driver's own checkpoint
//! threads ask libcuda for it (`stasis_injection::survey`).

mod holding;
mod imported;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::survey::{ProcessGpuMemory, Removed, ask, prepare, remove};
use stasis_linux::{ProcessRef, error_chain};

use super::imports::{Asked, Share, Visit, at_the_same_time, visit_all};
use crate::cuda::process_set::initial_state::ProcessId;
pub use holding::{Holding, Pieces};
use imported::imported;

/// One survey of processes, by a process of its own (`gpu_path/process.rs`).
#[derive(Debug, Serialize, Deserialize)]
pub struct Survey {
    pub(super) asked: Vec<Asked>,
    /// The directory of the records.
    pub(super) records: PathBuf,
}

/// The result of a survey.
#[derive(Debug, Serialize, Deserialize)]
pub struct Surveyed {
    /// The memory of each process, or why it cannot be asked, in the order of the processes.
    pub held: Vec<Result<Holding, String>>,
    /// The memory that they share with each other, and can give up: other imports are not in here.
    pub shares: Vec<Share>,
}

impl Survey {
    /// Surveys the processes. Nothing of ours is left in them, or there is a record of it.
    pub(super) fn run(&self) -> io::Result<Surveyed> {
        visit_all(&self.records, &self.asked, survey)
    }
}

/// Surveys visited processes. Each has to answer: memory that it shares would be lost silently.
fn survey(visits: &[io::Result<Visit>]) -> io::Result<Surveyed> {
    let visited: Vec<&Visit> = visits.iter().flatten().collect();
    let found = at_the_same_time(&visited, |visit| {
        ask(&visit.process, &visit.record).map_err(io::Error::other)
    });
    let found: Vec<ProcessGpuMemory> = found.into_iter().collect::<io::Result<_>>()?;
    let known: Vec<(&Visit, &ProcessGpuMemory)> = visited.iter().copied().zip(&found).collect();
    let shares = imported(&known)?;
    let mut answers = known.into_iter().map(|(visit, found)| {
        let shared = addresses(&shares, visit);
        Holding::of(found, &shared)
    });
    let held = visits.iter().map(|visit| match visit {
        Ok(_) => answers.next().ok_or_else(String::new),
        Err(error) => Err(error_chain(error)),
    });
    Ok(Surveyed {
        held: held.collect(),
        shares,
    })
}

/// Returns the addresses of memory that a process imports from others of the survey.
fn addresses(shares: &[Share], visit: &Visit) -> BTreeSet<u64> {
    let importer = ProcessId::of(&visit.process);
    let own = shares.iter().filter(|share| share.importer == importer);
    own.map(|share| share.import.address).collect()
}

/// Surveys a process of our own, which needs no record.
pub(super) fn survey_own(process: &ProcessRef, thread: i32) -> io::Result<Holding> {
    let prepared = prepare(process, thread).map_err(io::Error::other)?;
    let found = ask(process, &prepared).map_err(io::Error::other);
    match remove(process, &prepared).map_err(io::Error::other)? {
        Removed::Gone | Removed::Ended => Ok(Holding::of(&found?, &BTreeSet::new())),
        Removed::InUse => Err(found.err().unwrap_or_else(|| {
            io::Error::other("the driver's checkpoint thread does not come back")
        })),
    }
}
