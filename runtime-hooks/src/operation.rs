//! One operation at a time for each container, and the record that one was under way.
//!
//! Below the state directory every container that is being operated on has a directory with a
//! lock file, held by flock(2) for the whole operation. The *intent* is a second file, there from
//! before the first driver call until every CUDA process is RUNNING again (or gone): as long as
//! it exists, processes of the container may be locked or checkpointed, and the next operation
//! asks the driver and puts that right. This is all that recovery after a crash needs, since the
//! driver knows the rest.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cuda::GpuMap;
use crate::manifest::CudaProcess;
use crate::memory_limit;
use crate::progress;

pub(crate) const LOCK: &str = "lock";
const INTENT: &str = "intent.json";
const MAX_INTENT_BYTES: u64 = 1 << 20;

/// The right to operate on a container, until dropped.
#[derive(Debug)]
pub struct Operation {
    directory: PathBuf,
    /// Unlocked when closed.
    _lock: File,
}

/// What an operation that is under way, or was cut off, meant to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The processes that may be locked or checkpointed, with what they held on which GPU: the
    /// driver does not tell that of a process whose GPU state is in host memory.
    pub processes: Vec<CudaProcess>,
    /// What has to happen before they may run again.
    pub waits_for: WaitsFor,
    /// The token of the process that waits for one that does not answer (`guardian.rs`), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guardian: Option<u64>,
}

impl Intent {
    /// The same with the token of a guardian.
    pub(crate) fn guarded_by(self, token: u64) -> Self {
        let guardian = Some(token);
        Self { guardian, ..self }
    }

    /// Whether it is the one that a guardian was left for.
    /// The same with its GPUs where a map puts them.
    pub(crate) fn moved(mut self, map: &GpuMap) -> Self {
        for gpu in self
            .processes
            .iter_mut()
            .flat_map(|process| &mut process.gpus)
        {
            let pair = map.pairs().iter().find(|(old, _)| *old == gpu.uuid);
            gpu.uuid = pair.map_or(gpu.uuid, |(_, new)| *new);
        }
        self
    }

    pub(crate) fn is_guarded_by(&self, token: u64) -> bool {
        self.guardian == Some(token)
    }
}

/// Who has to finish an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// The operation itself; if it is dead, any later one.
    Operation,
    /// The caller's OCI `resume`: the container was frozen when a checkpoint that leaves it
    /// running began, and the caller still copies its files.
    Resume,
    /// The operator, who has freed the container's GPUs (`cuda-checkpoint --container`) and gives them back.
    Operator,
}

/// Why a container cannot be operated on.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// Another operation is under way.
    #[error("another stasis operation{holder} works on this container; try again when it is done")]
    Busy {
        /// " (process N)", as far as it is known.
        holder: String,
    },
    /// The state directory cannot be used.
    #[error("cannot use {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Where the records of the container `id` of the low-level runtime with this root are.
pub(crate) fn directory_of(state_dir: &Path, root: &Path, id: &str) -> PathBuf {
    // The same id may exist below two roots; '%' is in no id, and a root is absolute.
    let root = root.to_string_lossy().replace('/', "%");
    state_dir.join("containers").join(root).join(id)
}

/// Whether anything is recorded of a container: cheap, for the verbs that mostly pass through.
#[must_use]
pub fn has_record(state_dir: &Path, root: &Path, id: &str) -> bool {
    directory_of(state_dir, root, id).exists()
}

/// What is recorded of a container, seen without the right to operate on it: it may be another
/// operation's, and change at any time.
///
/// # Errors
/// As [`Operation::recorded`].
pub(crate) fn glance(
    state_dir: &Path,
    root: &Path,
    id: &str,
) -> Result<Option<Intent>, OperationError> {
    read_intent(&directory_of(state_dir, root, id))
}

fn read_intent(directory: &Path) -> Result<Option<Intent>, OperationError> {
    let path = directory.join(INTENT);
    let read = || {
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut text = Vec::new();
        file.take(MAX_INTENT_BYTES).read_to_end(&mut text)?;
        Ok(Some(serde_json::from_slice(&text)?))
    };
    read().map_err(|source| OperationError::Io {
        path: path.clone(),
        source,
    })
}

impl Operation {
    /// Takes the right to operate on a container, without waiting.
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
            // The holder before us may have removed the file that we locked: look again.
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

    /// The directory of this operation's own files; gone when it is forgotten.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Records what is about to be done; on disk when this returns.
    ///
    /// # Errors
    /// [`OperationError::Io`].
    pub fn record(&self, intent: &Intent) -> Result<(), OperationError> {
        let path = self.directory.join(INTENT);
        let write = || {
            let staged = self.directory.join("intent.new");
            let mut file = File::create(&staged)?;
            file.write_all(&serde_json::to_vec(intent)?)?;
            file.sync_all()?;
            fs::rename(&staged, &path)
        };
        write().map_err(|source| OperationError::Io {
            path: path.clone(),
            source,
        })
    }

    /// What an earlier operation recorded and did not finish.
    ///
    /// # Errors
    /// [`OperationError::Io`], also for a record that cannot be read as one.
    pub fn recorded(&self) -> Result<Option<Intent>, OperationError> {
        read_intent(&self.directory)
    }

    /// Nothing is left to put right: removes all that is recorded of the container.
    pub fn forget(&self) {
        // A limit that cannot go back yet stays recorded, for the next operation on the container.
        if memory_limit::put_back(&self.directory).is_err() {
            let _ = fs::remove_file(self.directory.join(INTENT));
            return;
        }
        // Left-over files would only cost the next operation a look at the driver.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Operation {
    /// What recorded nothing leaves nothing.
    fn drop(&mut self) {
        if !self.directory.join(INTENT).exists() {
            self.forget();
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
mod tests {
    use super::*;

    const ROOT: &str = "/run/runc";

    fn begin(state: &Path) -> Result<Operation, OperationError> {
        Operation::begin(state, Path::new(ROOT), "c1")
    }

    #[test]
    fn a_second_operation_is_refused_and_told_by_whom() {
        let state = tempfile::tempdir().unwrap();
        let first = begin(state.path()).unwrap();
        let error = begin(state.path()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("(process {})", std::process::id()))
        );
        drop(first);
        drop(begin(state.path()).unwrap());
        assert!(!has_record(state.path(), Path::new(ROOT), "c1"));
    }

    #[test]
    fn containers_of_other_roots_are_others() {
        let state = tempfile::tempdir().unwrap();
        let _first = begin(state.path()).unwrap();
        Operation::begin(state.path(), Path::new("/run/other"), "c1").unwrap();
    }

    #[test]
    fn an_intent_outlives_its_operation_until_it_is_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let intent = Intent {
            processes: Vec::new(),
            waits_for: WaitsFor::Resume,
            guardian: None,
        };
        let operation = begin(state.path()).unwrap();
        assert_eq!(operation.recorded().unwrap(), None);
        operation.record(&intent).unwrap();
        drop(operation);
        assert!(has_record(state.path(), Path::new(ROOT), "c1"));
        let operation = begin(state.path()).unwrap();
        assert_eq!(operation.recorded().unwrap(), Some(intent));
        operation.forget();
        assert!(!has_record(state.path(), Path::new(ROOT), "c1"));
    }
}
