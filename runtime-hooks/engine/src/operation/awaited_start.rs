//! The record of a container that was created from an image and not started yet: its tasks exist
//! and are frozen. Its `start` gives them their GPU and resumes them.
//!
//! The record is a file in the operation's directory, from the end of `create` to the end of
//! `start`. Like the container it does not outlive the machine's uptime.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stasis_host::json_record;

use crate::operation::directory::{directories, directory_of, id_of};
use crate::operation::{Operation, OperationError};

/// The record's file in an operation's directory.
pub(super) const FILE_NAME: &str = "start.json";
const MAX_BYTES: u64 = 64 << 10;

/// The facts that a start needs from the create before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedStart {
    /// The image directory, without links.
    pub image: PathBuf,
    /// The container's bundle.
    pub(crate) bundle: PathBuf,
    /// The hash of the image's manifest, if its processes have GPU state: the image must be the
    /// same when the container is started.
    pub manifest: Option<String>,
}

/// Whether a container waits for its start.
#[must_use]
pub fn awaits_start(state_dir: &Path, root: &Path, id: &str) -> bool {
    directory_of(state_dir, root, id).join(FILE_NAME).exists()
}

impl AwaitedStart {
    /// Returns the records of all waiting containers, each with the container's id. Skips
    /// unreadable records: such a container cannot be started.
    ///
    /// # Errors
    /// The state directory cannot be read.
    pub fn all(state_dir: &Path) -> io::Result<Vec<(String, Self)>> {
        let directories = directories(state_dir)?.into_iter();
        let read = |directory: PathBuf| Some((id_of(&directory).to_owned(), read(&directory)?));
        Ok(directories.filter_map(read).collect())
    }

    /// Returns the record of a container, if it waits and the record is readable.
    #[must_use]
    pub fn of(state_dir: &Path, root: &Path, id: &str) -> Option<Self> {
        read(&directory_of(state_dir, root, id))
    }
}

fn read(directory: &Path) -> Option<AwaitedStart> {
    json_record::read(&directory.join(FILE_NAME), MAX_BYTES).ok()?
}

impl Operation {
    /// Leaves the container to its `start`.
    pub(crate) fn await_start(&self, awaited: &AwaitedStart) -> Result<(), OperationError> {
        let path = self.directory().join(FILE_NAME);
        json_record::write(&path, awaited).map_err(OperationError::of_file(&path))
    }

    /// Returns the facts that a `start` needs, if the container waits for one.
    ///
    /// # Errors
    /// [`OperationError::Io`], also for a file that holds no valid record.
    pub(crate) fn awaited_start(&self) -> Result<Option<AwaitedStart>, OperationError> {
        let path = self.directory().join(FILE_NAME);
        json_record::read(&path, MAX_BYTES).map_err(OperationError::of_file(&path))
    }

    /// Removes the record: the container has been started, or is gone.
    pub(crate) fn awaits_no_start(&self) {
        let _ = fs::remove_file(self.directory().join(FILE_NAME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_start_stays_recorded_after_the_operation() {
        let state = tempfile::tempdir().unwrap();
        let (state, root) = (state.path(), Path::new("/run/runc"));
        let begin = || Operation::begin(state, root, "c1").unwrap();
        let awaited = AwaitedStart {
            image: "/images/job".into(),
            bundle: "/bundle".into(),
            manifest: None,
        };
        begin().await_start(&awaited).unwrap();
        assert!(awaits_start(state, root, "c1"));
        let all = AwaitedStart::all(state).unwrap();
        assert_eq!(all, [("c1".to_owned(), awaited.clone())]);
        begin().clear_unless_pending();
        let operation = begin();
        assert_eq!(operation.awaited_start().unwrap(), Some(awaited));
        operation.awaits_no_start();
        drop(operation);
        assert!(!awaits_start(state, root, "c1"));
        assert!(!begin().directory().join(FILE_NAME).exists());
    }
}
