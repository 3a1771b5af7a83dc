//! A process that has GPU contents while they are detached from their processes.
//!
//! Like the process that copies for the driver it is in stasis' own cgroup, which is charged for
//! the loaded contents, and makes calls in programs that must not be cut off with the operation.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_host::respawn;

use super::again::StoreAgain;
use super::from_store::give_back_from_store;
use super::hold::Hold;
use super::load::Load;
use crate::gpu_path::steps::{report_done, report_result};

/// The first argument of such a process.
pub(super) const VERB: &str = "stasis-gpu-hold";

/// The work of the process.
#[derive(Debug, Serialize, Deserialize)]
pub enum DetachedProcess {
    /// Holds contents that are stored, while a checkpoint dumps their processes.
    Hold(Box<Hold>),
    /// Has the holders give contents back, or does so itself where both were killed: the directory
    /// of the operation has the record.
    GiveBack(PathBuf),
    /// Loads the contents of an image, for processes that are restored.
    Load(Load),
    /// Stores the contents of an image in another store.
    StoreAgain(Box<StoreAgain>),
}

impl DetachedProcess {
    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-gpu-hold")
    }

    /// Does the work.
    ///
    /// # Errors
    /// The caller receives the error as well, or is gone.
    pub fn run(self) -> io::Result<()> {
        match self {
            Self::Hold(hold) => hold.run(),
            Self::GiveBack(directory) => report_done(give_back_from_store(&directory)),
            Self::Load(load) => load.run(),
            Self::StoreAgain(again) => report_result(again.run()),
        }
    }
}
