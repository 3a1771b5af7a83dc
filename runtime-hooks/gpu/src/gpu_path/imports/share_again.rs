//! Makes imports again, of the same allocations, at the same addresses.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::{Members, identify, import};

use super::give_up::to_own;
use super::hand_over::{Visits, hand_over};
use super::{Asked, Share, Visit, record, visit_all};
use crate::cuda::process_set::initial_state::ProcessId;

/// Makes the imports again in the record in an operation's directory, of the owners that live.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShareAgain {
    /// The importers and the owners.
    pub(in crate::gpu_path) asked: Vec<Asked>,
    /// The directory of the records of injected code.
    pub(in crate::gpu_path) records: PathBuf,
    /// The operation's directory.
    pub(in crate::gpu_path) directory: PathBuf,
}

impl ShareAgain {
    /// Makes them again. May be repeated: existing mappings are left alone.
    pub(in crate::gpu_path) fn run(&self) -> io::Result<()> {
        let is_owner = |id| self.asked.iter().any(|asked| asked.process == id);
        let recorded = record::read(&self.directory)?.into_iter();
        let (shares, lost): (Vec<Share>, Vec<Share>) =
            recorded.partition(|share| is_owner(share.owner));
        visit_all(&self.records, &self.asked, |visits| {
            let visits = by_process(visits)?;
            hand_over(&visits, &shares, import)?;
            verify(&visits, &shares)
        })?;
        match lost.is_empty() {
            true => record::forget(&self.directory),
            false => record::write(&self.directory, &lost),
        }
    }
}

fn by_process(visits: &[io::Result<Visit>]) -> io::Result<Visits<'_>> {
    let each = visits.iter().map(|visit| {
        let visit = visit.as_ref().map_err(to_own)?;
        Ok((ProcessId::of(&visit.process), visit))
    });
    each.collect()
}

/// Reads through each import what is written to its allocation.
fn verify(visits: &Visits<'_>, shares: &[Share]) -> io::Result<()> {
    let positions: BTreeMap<ProcessId, usize> = visits.keys().copied().zip(0..).collect();
    let mut all: Vec<_> = visits
        .values()
        .map(|visit| (visit.visited(), Members::default()))
        .collect();
    let mut expected = Vec::new();
    for share in shares {
        let (owner, importer) = (positions[&share.owner], positions[&share.importer]);
        let own = &mut all[owner].1.own;
        let at = share.owned_at;
        let index = own.iter().position(|place| *place == at);
        let index = index.unwrap_or_else(|| {
            own.push(at);
            own.len() - 1
        });
        all[importer].1.candidates.push(share.place());
        expected.push((
            importer,
            all[importer].1.candidates.len() - 1,
            (owner, index),
        ));
    }
    let found = identify(&all).map_err(io::Error::other)?;
    let is_right = |(importer, candidate, of): &(usize, usize, (usize, usize))| {
        found.get(*importer).and_then(|all| all.get(*candidate)) == Some(&Some(*of))
    };
    match expected.iter().all(is_right) {
        true => Ok(()),
        false => Err(io::Error::other(
            "what was imported again is not what it was",
        )),
    }
}
