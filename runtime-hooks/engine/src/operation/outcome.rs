//! An outcome that operations on several containers share: one file decides it.
//!
//! A parent process makes the file before it starts anything. Once all images are on disk it
//! renames the file to `group.json`, in one step: the checkpoint is complete. If there cannot be
//! one it removes the file. No other process touches it, so the file shows the parent's decision,
//! and if the parent has ended without one, there is no checkpoint. A parent that does not decide
//! in time is killed first. The same holds for a restore.

use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_host::json_record;
use stasis_linux::file;

use crate::request::AfterDump;

/// The file once the outcome is a success.
pub const COMPLETE: &str = "group.json";
/// The prefix of the file until then, followed by the outcome's id.
pub const PENDING: &str = ".stasis-group-";
/// The limit of the file, in bytes: some hundred for each container.
pub const MAX_BYTES: u64 = 16 << 20;
const POLL: Duration = Duration::from_millis(20);
/// How long a parent may take to end after SIGKILL.
const ENDING: Duration = Duration::from_secs(10);

/// The shared outcome, as in the record of each operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedOutcome {
    /// Its unique id.
    pub id: String,
    /// The directory of the file: for a checkpoint that of the images, which have a directory each.
    pub directory: PathBuf,
    /// Whether the containers resume once all images are complete.
    pub after: AfterDump,
    /// The process that decides.
    pub parent: ProcessId,
    /// The engine of this container, which removes ended containers.
    pub engine: Option<String>,
}

/// The part of the file that the decision needs.
#[derive(Deserialize)]
struct DecisionFile {
    id: String,
    parent: ProcessId,
}

/// The parent's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// All images are complete, and each container resumes or ends, as requested.
    Complete,
    /// There is no checkpoint, and each container goes back to the state in which it was found.
    Abandoned,
}

/// Returns the decision on the outcome of this id; `None`: there is none yet.
fn decision_in(directory: &Path, id: &str) -> io::Result<Option<Decision>> {
    // Looks for the pending file first: if it is renamed meanwhile, it is found by its new name.
    let pending = directory.join(format!("{PENDING}{id}"));
    if file::if_exists(pending.symlink_metadata())?.is_some() {
        return Ok(None);
    }
    let complete = read(&directory.join(COMPLETE))?;
    Ok(Some(match complete.is_some_and(|file| file.id == id) {
        true => Decision::Complete,
        false => Decision::Abandoned,
    }))
}

/// The same for processes that do not share it: `None` only as long as its parent lives.
///
/// # Errors
/// An I/O error, also for a file that is not ours.
pub fn decision_of(directory: &Path, id: &str) -> io::Result<Option<Decision>> {
    let file = read(&directory.join(format!("{PENDING}{id}")))?;
    let parent = file.map(|file| file.parent.open()).transpose()?.flatten();
    // The parent first: a decision before its end is visible then.
    let decision = decision_in(directory, id)?;
    Ok(decision.or_else(|| parent.is_none().then_some(Decision::Abandoned)))
}

fn read(path: &Path) -> io::Result<Option<DecisionFile>> {
    json_record::read(path, MAX_BYTES)
}

impl SharedOutcome {
    /// Waits for the parent's decision. A parent without one at the deadline is killed:
    /// there is no success then.
    ///
    /// # Errors
    /// An I/O error: the decision is not known.
    pub fn wait_for_decision(&self, limit: Duration) -> io::Result<Decision> {
        let deadline = Instant::now() + limit;
        loop {
            let parent = self.parent.open()?;
            // The parent first: a decision before its end is visible then.
            match (self.decision()?, &parent) {
                (Some(decision), _) => return Ok(decision),
                (None, None) => return Ok(Decision::Abandoned),
                (None, Some(_)) if Instant::now() > deadline => self.end_parent()?,
                (None, Some(_)) => sleep(POLL),
            }
        }
    }

    /// Kills a parent that hangs.
    ///
    /// # Errors
    /// The parent does not end.
    pub fn end_parent(&self) -> io::Result<()> {
        let Some(parent) = self.parent.open()? else {
            return Ok(());
        };
        parent.kill()?;
        match parent.outlives(ENDING)? {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Makes a decision for which containers have ended survive a crash of the machine.
    pub fn sync(&self) -> io::Result<()> {
        file::sync_directory(&self.directory)
    }

    fn decision(&self) -> io::Result<Option<Decision>> {
        decision_in(&self.directory, &self.id)
    }
}
