//! Gives imports up, so that the driver can restore their process.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::{Import, drop_imports};

use super::{Asked, Share, Visit, at_the_same_time, record, visit_all};
use crate::cuda::process_set::initial_state::ProcessId;

/// Gives up imports that are in the record in an operation's directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct GiveUp {
    /// The importers.
    pub(in crate::gpu_path) asked: Vec<Asked>,
    /// Imports that were given up before, and are mapped again. The record has their references.
    pub(in crate::gpu_path) again: Vec<Share>,
    /// The others, whose references are counted.
    pub(in crate::gpu_path) first: Vec<Share>,
    /// The directory of the records of injected code.
    pub(in crate::gpu_path) records: PathBuf,
    /// The operation's directory.
    pub(in crate::gpu_path) directory: PathBuf,
}

impl GiveUp {
    /// Gives them up. After any failure, [`super::ShareAgain`] brings them back.
    pub(in crate::gpu_path) fn run(&self) -> io::Result<()> {
        let mut recorded = record::read(&self.directory)?;
        visit_all(&self.records, &self.asked, |visits| {
            let visits: Vec<&Visit> = visits
                .iter()
                .map(|visit| visit.as_ref().map_err(to_own))
                .collect::<io::Result<_>>()?;
            let again = at_the_same_time(&visits, |visit| give_up(visit, &self.again).1);
            let first = at_the_same_time(&visits, |visit| Ok(give_up(visit, &self.first)));
            let mut done = again.into_iter().collect::<io::Result<()>>();
            for (visit, given_up) in visits.iter().zip(first) {
                let (references, one) = given_up?;
                let counted = of(visit, &self.first).zip(references);
                note(counted, &mut recorded);
                done = done.and(one);
            }
            // Also after a failure: these are what is made again.
            record::write(&self.directory, &recorded)?;
            done
        })
    }
}

/// Returns the imports of a process.
fn of<'s>(visit: &Visit, shares: &'s [Share]) -> impl Iterator<Item = &'s Share> {
    let importer = ProcessId::of(&visit.process);
    shares
        .iter()
        .filter(move |share| share.importer == importer)
}

/// Gives up the imports of one process. Returns how many references those had that are given up,
/// and why others are not.
fn give_up(visit: &Visit, shares: &[Share]) -> (Vec<u64>, io::Result<()>) {
    let imports: Vec<Import> = of(visit, shares).map(|share| share.import).collect();
    let mut references = Vec::new();
    let done = drop_imports(&visit.visited(), &imports, &mut references);
    (references, done.map_err(io::Error::other))
}

/// Notes how many references imports had.
fn note<'s>(counted: impl Iterator<Item = (&'s Share, u64)>, recorded: &mut [Share]) {
    for (counted, references) in counted {
        let recorded = recorded.iter_mut();
        for share in recorded.filter(|share| share.is_of_one_mapping(counted)) {
            share.import.references = references;
        }
    }
}

/// Copies an error, for a caller that only borrows it.
pub(super) fn to_own(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
