//! The lock that allows one operation at a time on a container, and the operation's records.
//!
//! Below the state directory every container that is being operated on has a directory with a lock
//! file, held by flock(2) for the whole operation. Before an operation changes anything it records
//! there the changes to undo (`undo.rs`), and starts its *keeper* (`keeper.rs`), which undoes them
//! if the operation is killed. The *intent* (`intent.rs`) is a further file, which exists from
//! before the first driver call until every CUDA process is as it was found (or gone).

pub mod awaited_start;
mod children;
mod directory;
pub(crate) mod estimate;
mod intent;
mod keeper;
mod keeper_state;
pub mod lock;
pub mod outcome;
pub mod progress;
pub mod stopping;
pub mod terminate;
pub mod timeline;
pub mod undo;
pub mod verb;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use stasis_linux::directory::Directory;

use crate::context::Context;
use crate::operation::directory::state_dir_of;
pub use crate::operation::directory::{directories, directory_of, id_of, root_of};
pub use crate::operation::intent::peek;
pub use crate::operation::intent::{Intent, Member, PendingOn};
pub(crate) use crate::operation::keeper_state::Left;
use crate::operation::keeper_state::{End, KeeperState};
pub use crate::operation::lock::Holder;
use crate::operation::lock::{Purpose, Tried, try_lock};
use crate::operation::progress::UnderWay;
pub(crate) use keeper::{DONE, VERB as KEEPER, show_trying};
use stasis_gpu::ledger::Reservation;
use stasis_gpu::ledger::gpu_memory::GpuMemory;

/// The right to operate on a container, until dropped.
#[derive(Debug)]
pub struct Operation {
    directory: PathBuf,
    lock: File,
    keeper_state: Mutex<KeeperState>,
    reservation: Arc<Reservation>,
}

/// Why a container cannot be operated on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OperationError {
    #[error(
        "another stasis operation{holder} is running on this container; try again when it has ended"
    )]
    Busy { holder: Holder },
    /// Another operation is under way, as its progress file says.
    #[error("a {verb} is running on this container (process {pid}); try again when it has ended")]
    UnderWay { verb: String, pid: i32 },
    /// Children of a killed operation (the low-level runtime, CRIU) still run.
    #[error(
        "a stasis operation was killed, and its programs still work on this container; try again \
         when they have ended"
    )]
    Orphans,
    #[error("a killed operation must be undone first: {0}")]
    Unfinished(String),
    #[error("the container was created from an image and is not started yet; start it first")]
    NotStarted,
    /// The keeper cannot be started, without which nothing may be changed.
    #[error("cannot start the process that undoes the operation if this one is killed")]
    Keeper(#[source] io::Error),
    #[error("cannot use {path}")]
    Io { path: PathBuf, source: io::Error },
}

impl OperationError {
    /// Makes the error of this file or directory from an I/O error.
    pub(crate) fn of_file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Io { path, source }
    }
}

/// Returns whether an operation works on a container, or has left files behind. Cheap, because most
/// calls of the verbs that use this only pass through.
pub(crate) fn has_directory(state_dir: &Path, root: &Path, id: &str) -> bool {
    directory_of(state_dir, root, id).exists()
}

/// Returns whether a record of changes to undo, or of processes left to others, exists.
#[must_use]
pub(crate) fn is_recorded(state_dir: &Path, root: &Path, id: &str) -> bool {
    let directory = directory_of(state_dir, root, id);
    [undo::FILE_NAME, intent::FILE_NAME, awaited_start::FILE_NAME]
        .iter()
        .any(|file| directory.join(file).exists())
}

/// Returns an error if an operation is under way. Does not take the lock, so a check never makes
/// an operation wait. An operation that has not begun its first phase has changed nothing yet.
pub fn refuse_under_way(state_dir: &Path, root: &Path, id: &str) -> Result<(), OperationError> {
    let directory = directory_of(state_dir, root, id);
    let path = directory.join(progress::FILE_NAME);
    let under_way = UnderWay::read(&directory).map_err(OperationError::of_file(&path))?;
    let Some(under_way) = under_way else {
        return Ok(());
    };
    let is_alive = under_way.is_alive();
    if !is_alive.map_err(OperationError::of_file(&path))? {
        return Ok(());
    }
    Err(OperationError::UnderWay {
        verb: under_way.operation,
        pid: under_way.pid,
    })
}

impl Operation {
    /// Takes the lock of a container, without waiting.
    pub fn begin(state_dir: &Path, root: &Path, id: &str) -> Result<Self, OperationError> {
        Self::begin_for(Purpose::Operation, directory_of(state_dir, root, id))
    }

    /// Takes the lock of the container that has this directory, to undo an earlier operation.
    /// Callers that come meanwhile wait ([`Holder::ends_soon`]).
    pub fn begin_recovery(directory: PathBuf) -> Result<Self, OperationError> {
        Self::begin_for(Purpose::Recovery, directory)
    }

    fn begin_for(purpose: Purpose, directory: PathBuf) -> Result<Self, OperationError> {
        let state_dir = state_dir_of(&directory);
        Directory::make(state_dir, 0o700).map_err(OperationError::of_file(state_dir))?;
        let tried = try_lock(&directory, purpose);
        match tried.map_err(OperationError::of_file(&directory.join(lock::NAME)))? {
            Tried::Held(holder) => Err(OperationError::Busy { holder }),
            Tried::Locked(lock) => {
                progress::remove(&directory);
                Ok(Self::new(directory, lock))
            }
        }
    }

    fn new(directory: PathBuf, lock: File) -> Self {
        let reservation = Reservation::new(state_dir_of(&directory), id_of(&directory))
            .recorded(undo::path_in(&directory));
        Self {
            directory,
            lock,
            keeper_state: Mutex::default(),
            reservation: Arc::new(reservation),
        }
    }

    /// The directory of this operation's files; [`Operation::clear`] removes it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The container.
    pub(crate) fn id(&self) -> &str {
        id_of(&self.directory)
    }

    /// Its reservations on the node.
    pub(crate) fn reservation(&self) -> &Arc<Reservation> {
        &self.reservation
    }

    /// Returns the ledger where it reserves GPU memory.
    pub(crate) fn gpu_memory(&self, context: &Context) -> GpuMemory {
        GpuMemory::new(&self.reservation, context.wait_limit(), &context.settings)
    }

    /// Writes the intent, for any process that follows this one.
    pub fn record(&self, intent: &Intent) -> Result<(), OperationError> {
        intent.write(&self.directory)
    }

    /// Reads the intent that an earlier operation recorded and did not finish.
    ///
    /// # Errors
    /// [`OperationError::Io`], also for a file that holds no valid intent.
    pub fn recorded(&self) -> Result<Option<Intent>, OperationError> {
        Intent::read(&self.directory)
    }

    /// Ends the operation of an intent, once all processes that it moved are as they were found:
    /// records processes that are left to others, if there are any.
    ///
    /// # Errors
    /// [`OperationError::Io`]; the record is unchanged, and still true of these processes.
    pub fn settle(&self, intent: Intent) -> Result<(), OperationError> {
        match intent.settled() {
            Some(left) => {
                self.record(&left)?;
                self.nothing_to_undo();
            }
            None => self.clear(),
        }
        Ok(())
    }

    /// Removes all records of the container, once all its processes are as they were found, or are
    /// gone. Afterwards this value may only be dropped.
    pub fn clear(&self) {
        // Otherwise this record would be taken for the next container's of the same id.
        self.awaits_no_start();
        // An intent that is left alone is of processes that wait for others, or are lost. Without
        // it the undoing of the record changes nothing.
        for file in [intent::FILE_NAME, undo::FILE_NAME] {
            let _ = fs::remove_file(self.directory.join(file));
        }
        directory::remove(&self.directory);
        // Before the lock is released, another operation may make a directory of this name.
        self.keeper_state().end = End::Cleared;
    }
}

#[cfg(test)]
mod tests;
