//! Imports are given up, so that the driver restores their process.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::imports::{Import, drop_imports};

use super::{Asked, Share, Visit, record, visit_all};
use crate::cuda::process_set::as_found::ProcessId;

/// Gives up all that the record in the directory of an operation has.
#[derive(Debug, Serialize, Deserialize)]
pub struct GiveUp {
    /// The importers.
    pub(in crate::gpu_path) asked: Vec<Asked>,
    /// The directory of the records of what is in processes.
    pub(in crate::gpu_path) records: PathBuf,
    /// The operation's.
    pub(in crate::gpu_path) directory: PathBuf,
}

impl GiveUp {
    /// Carries it out. Whatever fails, [`super::ShareAgain`] brings back what was given up.
    pub(in crate::gpu_path) fn run(&self) -> io::Result<()> {
        let mut shares = record::read(&self.directory)?;
        visit_all(&self.records, &self.asked, |visits| {
            for visit in visits {
                give_up(visit.as_ref().map_err(to_own)?, &mut shares)?;
            }
            Ok(())
        })?;
        // Now it is known how many references each had.
        record::write(&self.directory, &shares)
    }
}

/// All of one process.
fn give_up(visit: &Visit, shares: &mut [Share]) -> io::Result<()> {
    let importer = ProcessId::of(&visit.process);
    let own = shares.iter_mut().filter(|share| share.importer == importer);
    let own: Vec<&mut Share> = own.collect();
    let imports: Vec<Import> = own.iter().map(|share| share.import).collect();
    let references = drop_imports(&visit.visited(), &imports).map_err(io::Error::other)?;
    for (share, references) in own.into_iter().zip(references) {
        share.import.references = references;
    }
    Ok(())
}

/// The same error, for who does not own the first one.
pub(super) fn to_own(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
