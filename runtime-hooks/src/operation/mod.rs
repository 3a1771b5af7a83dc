//! The lock that allows one operation at a time on a container, and the operation's record.
//!
//! Below the state directory every container that is being operated on has a directory with a
//! lock file, held by flock(2) for the whole operation. The *intent* (`intent.rs`) is a second
//! file, which exists from before the first driver call until every CUDA process is as it was found
//! (or gone). As long as it exists, processes of the container may be locked or checkpointed, and
//! whoever the record names brings them back. Recovery after a crash needs nothing else, since the
//! driver knows each process's state.

mod directory;
pub mod estimate;
mod intent;
pub mod progress;
pub(crate) mod terminate;
pub mod timeline;
pub mod verb;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::container::memory_limit;
use crate::operation::directory::directory_of;
pub(crate) use crate::operation::intent::peek;
pub use crate::operation::intent::{Intent, Member, PendingOn, has_intent};
use crate::operation::progress::UnderWay;

pub(crate) const LOCK: &str = "lock";
/// How often [`Operation::begin_within`] tries to take the lock.
const POLL: Duration = Duration::from_millis(20);

/// The right to operate on a container, until dropped.
#[derive(Debug)]
pub struct Operation {
    directory: PathBuf,
    /// The lock file; closing it releases the lock.
    _lock: File,
}

/// Why a container cannot be operated on.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// Another operation is under way.
    #[error("another stasis operation{holder} works on this container; try again when it is done")]
    Busy {
        /// " (process N)", or empty if the process is not known.
        holder: String,
    },
    /// The state directory cannot be used.
    #[error("cannot use {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
}

/// Whether an operation works on a container, or has left files behind. Cheap, because most calls
/// of the verbs that ask this only pass through.
#[must_use]
pub fn has_directory(state_dir: &Path, root: &Path, id: &str) -> bool {
    directory_of(state_dir, root, id).exists()
}

/// Returns an error if an operation is under way. Does not take the lock, so a check never makes
/// an operation wait. An operation that has not begun its first phase has changed nothing yet.
///
/// # Errors
/// [`OperationError::Busy`].
pub(crate) fn refuse_under_way(
    state_dir: &Path,
    root: &Path,
    id: &str,
) -> Result<(), OperationError> {
    let directory = directory_of(state_dir, root, id);
    let io = |source| OperationError::Io {
        path: directory.join(progress::FILE_NAME),
        source,
    };
    let Some(under_way) = UnderWay::read(&directory).map_err(io)? else {
        return Ok(());
    };
    if !under_way.is_alive().map_err(io)? {
        return Ok(());
    }
    let holder = format!(" ({}, process {})", under_way.operation, under_way.pid);
    Err(OperationError::Busy { holder })
}

impl Operation {
    /// Takes the lock of a container, without waiting.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn begin(state_dir: &Path, root: &Path, id: &str) -> Result<Self, OperationError> {
        let directory = directory_of(state_dir, root, id);
        loop {
            let mut lock = open_lock(&directory).map_err(|source| OperationError::Io {
                path: directory.join(LOCK),
                source,
            })?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(OperationError::Busy {
                        holder: holder(&mut lock),
                    });
                }
                Err(error) => {
                    let path = directory.join(LOCK);
                    return Err(OperationError::Io {
                        path,
                        source: error.into(),
                    });
                }
            }
            // The previous holder may have removed the file that we locked: check the name again.
            let same = fs::metadata(directory.join(LOCK))
                .is_ok_and(|there| lock.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
            if same {
                let _ = lock
                    .set_len(0)
                    .and_then(|()| write!(lock, "{}", std::process::id()));
                progress::remove(&directory);
                return Ok(Self {
                    directory,
                    _lock: lock,
                });
            }
        }
    }

    /// Takes the lock of a container, and waits up to `wait` for another holder to release it.
    ///
    /// # Errors
    /// As [`Operation::begin`].
    pub fn begin_within(
        wait: Duration,
        state_dir: &Path,
        root: &Path,
        id: &str,
    ) -> Result<Self, OperationError> {
        let deadline = Instant::now() + wait;
        loop {
            match Self::begin(state_dir, root, id) {
                Err(OperationError::Busy { .. }) if Instant::now() < deadline => sleep(POLL),
                over => return over,
            }
        }
    }

    /// The directory of this operation's files; [`Operation::clear`] removes it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes the intent, for whoever comes after this process.
    ///
    /// # Errors
    /// [`OperationError::Io`].
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
    /// records what is left to others, if anything is.
    ///
    /// # Errors
    /// [`OperationError::Io`]; the record is as it was, which says the same of these processes.
    pub fn settle(&self, intent: Intent) -> Result<(), OperationError> {
        match intent.settled() {
            Some(left) => self.record(&left),
            None => {
                self.clear();
                Ok(())
            }
        }
    }

    /// Removes all records of the container, once all its processes run again or are gone.
    pub fn clear(&self) {
        // A memory limit that cannot be restored yet stays recorded for the next operation.
        if memory_limit::put_back(&self.directory).is_err() {
            let _ = fs::remove_file(self.directory.join(intent::FILE_NAME));
            return;
        }
        // Files left behind only make the next operation query the driver once more.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Operation {
    /// Removes the directory, unless an intent has to outlive this operation.
    fn drop(&mut self) {
        if !self.directory.join(intent::FILE_NAME).exists() {
            self.clear();
        }
    }
}

fn open_lock(directory: &Path) -> io::Result<File> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options.open(directory.join(LOCK))
}

fn holder(lock: &mut File) -> String {
    let mut pid = String::new();
    let _ = lock.take(16).read_to_string(&mut pid);
    if pid.is_empty() {
        pid
    } else {
        format!(" (process {pid})")
    }
}

#[cfg(test)]
mod tests;
