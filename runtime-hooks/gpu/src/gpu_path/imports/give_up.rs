//! Gives imports up, so that the driver can restore their process.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::{Import, drop_imports};

use super::{Asked, Share, Visit, at_the_same_time, record, visit_all};
use crate::cuda::process_set::initial_state::ProcessId;

/// Gives up all imports in the record in an operation's directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct GiveUp {
    /// The importers.
    pub(in crate::gpu_path) asked: Vec<Asked>,
    /// The directory of the records of injected code.
    pub(in crate::gpu_path) records: PathBuf,
    /// The operation's directory.
    pub(in crate::gpu_path) directory: PathBuf,
}

impl GiveUp {
    /// Gives them up. After any failure, [`super::ShareAgain`] brings them back.
    pub(in crate::gpu_path) fn run(&self) -> io::Result<()> {
        let mut shares = record::read(&self.directory)?;
        visit_all(&self.records, &self.asked, |visits| {
            let visits: Vec<&Visit> = visits
                .iter()
                .map(|visit| visit.as_ref().map_err(to_own))
                .collect::<io::Result<_>>()?;
            let given_up = at_the_same_time(&visits, |visit| Ok(give_up(visit, &shares)));
            let mut done = Ok(());
            for (visit, given_up) in visits.iter().zip(given_up) {
                let (references, one) = given_up?;
                note(visit, &references, &mut shares);
                done = done.and(one);
            }
            // Also after a failure: these are what is made again.
            record::write(&self.directory, &shares)?;
            done
        })
    }
}

/// Gives up the imports of one process. Returns how many references those had that are given up,
/// and why others are not.
fn give_up(visit: &Visit, shares: &[Share]) -> (Vec<u64>, io::Result<()>) {
    let importer = ProcessId::of(&visit.process);
    let own = shares.iter().filter(|share| share.importer == importer);
    let imports: Vec<Import> = own.map(|share| share.import).collect();
    let mut references = Vec::new();
    let done = drop_imports(&visit.visited(), &imports, &mut references);
    (references, done.map_err(io::Error::other))
}

/// Notes how many references each import of a process had.
fn note(visit: &Visit, references: &[u64], shares: &mut [Share]) {
    let importer = ProcessId::of(&visit.process);
    let own = shares.iter_mut().filter(|share| share.importer == importer);
    for (share, references) in own.zip(references) {
        share.import.references = *references;
    }
}

/// Copies an error, for a caller that only borrows it.
pub(super) fn to_own(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
