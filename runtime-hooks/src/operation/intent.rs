//! The intent: the record of what an operation may have done to a container's processes.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stasis_linux::file::{self, Access, Durability};

use crate::cuda::GpuMap;
use crate::cuda::gpu_use::CudaProcess;
use crate::operation::OperationError;
use crate::operation::directory::directory_of;

/// The record's file in an operation's directory.
pub(super) const FILE_NAME: &str = "intent.json";
/// The same as for a manifest, which lists the same processes.
const MAX_BYTES: u64 = 16 << 20;

/// What an operation that is under way, or was interrupted, does to a container.
///
/// The fields' former names are still read: /run may hold a record of an earlier version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The processes that may be locked or checkpointed, with the GPU memory they held: the driver
    /// does not report it for a process whose GPU state is in host memory.
    pub processes: Vec<CudaProcess>,
    /// Who has to finish the operation before the processes may run again.
    #[serde(alias = "waits_for")]
    pub pending_on: PendingOn,
    /// The token of the recovery process (`recovery/mod.rs`) that waits for a process that does not
    /// answer, if there is one.
    #[serde(default, alias = "guardian", skip_serializing_if = "Option::is_none")]
    pub recovery: Option<u64>,
}

/// Who has to finish an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PendingOn {
    /// The operation itself; if it is dead, any later one.
    Operation,
    /// The caller's OCI `resume`: the container was frozen when a checkpoint that leaves it
    /// running began, and the caller still copies its files.
    Resume,
    /// The operator, who has freed the container's GPUs (`cuda-checkpoint --container`) and gives
    /// them back.
    Operator,
}

impl Intent {
    /// The same intent with the token of a recovery process.
    pub(crate) fn recovered_by(self, token: u64) -> Self {
        let recovery = Some(token);
        Self { recovery, ..self }
    }

    /// Whether the recovery process with this token was started for the intent.
    pub(crate) fn is_recovered_by(&self, token: u64) -> bool {
        self.recovery == Some(token)
    }

    /// The same intent with each GPU replaced by the one that the map assigns.
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

    /// Reads the record in an operation's directory. `None` if there is no record.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, OperationError> {
        let path = directory.join(FILE_NAME);
        let read = || {
            let Some(text) = file::read(&path, MAX_BYTES)? else {
                return Ok(None);
            };
            Ok(Some(serde_json::from_slice(&text)?))
        };
        read().map_err(|source| OperationError::Io {
            path: path.clone(),
            source,
        })
    }

    /// Writes the record into an operation's directory; it is on disk when this returns.
    pub(super) fn write(&self, directory: &Path) -> Result<(), OperationError> {
        let path = directory.join(FILE_NAME);
        let write = || {
            let text = serde_json::to_vec(self)?;
            // A record too large to be read again would block every later operation.
            file::check_size(text.len() as u64, MAX_BYTES)?;
            file::replace(&path, &text, Access::Private, Durability::Durable)
        };
        write().map_err(|source| OperationError::Io {
            path: path.clone(),
            source,
        })
    }
}

/// Whether processes of a container may be locked or checkpointed.
#[must_use]
pub fn has_intent(state_dir: &Path, root: &Path, id: &str) -> bool {
    directory_of(state_dir, root, id).join(FILE_NAME).exists()
}

/// Reads a container's intent without taking its lock: it may be another operation's, and change
/// at any time.
///
/// # Errors
/// [`OperationError::Io`], also for a file that holds no valid intent.
pub(crate) fn peek(
    state_dir: &Path,
    root: &Path,
    id: &str,
) -> Result<Option<Intent>, OperationError> {
    Intent::read(&directory_of(state_dir, root, id))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"processes":[],"waits_for":"operator","guardian":7}"#;
        fs::write(directory.path().join(FILE_NAME), text).unwrap();
        let read = Intent::read(directory.path()).unwrap();
        let expected = Intent {
            processes: Vec::new(),
            pending_on: PendingOn::Operator,
            recovery: Some(7),
        };
        assert_eq!(read, Some(expected));
    }
}
