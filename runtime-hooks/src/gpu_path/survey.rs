//! Which GPU memory a locked process shares, or can be lost with: asked of libcuda by the driver's
//! own checkpoint thread (`stasis_injection::survey`).

mod holding;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_injection::survey::{Removed, SurveyRecord, ask, prepare, remove};
use stasis_linux::ProcessRef;

use super::records::{HeldRecord, Injected};
use crate::cuda::process_set::as_found::ProcessId;
pub use holding::{Holding, Pieces};

/// One survey of a process, by a process of its own (`gpu_path/process.rs`).
#[derive(Debug, Serialize, Deserialize)]
pub struct Survey {
    pub(super) process: ProcessId,
    /// The driver's checkpoint thread in it.
    pub(super) thread: i32,
    /// The directory of the records.
    pub(super) records: PathBuf,
}

impl Survey {
    /// Carries it out. Nothing of ours is left in the process, or there is a record of it.
    pub(super) fn run(&self) -> io::Result<Holding> {
        let process = self.process.open()?;
        let process = process.ok_or_else(|| io::Error::other("it has ended"))?;
        let prepared = prepare(&process, self.thread).map_err(io::Error::other)?;
        let kept = Injected::Survey(prepared.clone());
        match HeldRecord::write(&self.records, &process, &kept) {
            Ok(record) => {
                let found = survey(&process, &prepared)?;
                record.remove();
                found
            }
            // Nobody would know of what is in the process.
            Err(error) => {
                let _ = remove(&process, &prepared);
                Err(error)
            }
        }
    }
}

/// As [`Survey::run`], of a process of our own, which nobody has to put back.
pub(super) fn survey_own(process: &ProcessRef, thread: i32) -> io::Result<Holding> {
    let prepared = prepare(process, thread).map_err(io::Error::other)?;
    survey(process, &prepared)?
}

/// What was found, once nothing of ours is in the process any more.
fn survey(process: &ProcessRef, prepared: &SurveyRecord) -> io::Result<io::Result<Holding>> {
    let found = ask(process, prepared).map_err(io::Error::other);
    match remove(process, prepared).map_err(io::Error::other)? {
        Removed::Gone | Removed::Ended => Ok(found.map(|found| Holding::of(&found))),
        Removed::InUse => Err(found.err().unwrap_or_else(|| {
            io::Error::other("the driver's checkpoint thread does not come back")
        })),
    }
}
