//! Processes that do not answer the driver, and the recovery process that waits for them.

use std::fmt;
use std::io;

use crate::cuda::failure::{ProcessFailure, list};
use crate::operation::OperationError;

/// Processes that do not answer, and the pid of the recovery process.
#[derive(Debug)]
pub struct PendingRecovery {
    pub(crate) processes: Vec<ProcessFailure>,
    pub(crate) recovery: Result<u32, StartError>,
}

/// Why there is no recovery process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Record(#[from] OperationError),
    #[error("{0}")]
    Start(#[from] io::Error),
}

impl PendingRecovery {
    /// Whether the recovery process was started.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovery.is_ok()
    }
}

impl fmt::Display for PendingRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", list(&self.processes))?;
        match &self.recovery {
            Ok(pid) => write!(
                f,
                "; stasis process {pid} waits until all processes of the container answer and \
                 then lets them go on with their GPU: continue what is stopped, or kill the \
                 container"
            ),
            Err(error) => write!(
                f,
                "; no process could be started to wait for that ({error}): continue what is \
                 stopped and `resume` the container, or kill it"
            ),
        }
    }
}
