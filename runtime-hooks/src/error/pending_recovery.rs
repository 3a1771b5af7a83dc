//! Processes that do not answer the driver, and the keeper that waits for them.

use std::fmt;

use crate::cuda::failure::{ProcessFailure, list};
use crate::operation::OperationError;

/// Processes that do not answer, and the pid of the keeper.
#[derive(Debug)]
pub struct PendingRecovery {
    pub(crate) processes: Vec<ProcessFailure>,
    pub(crate) recovery: Result<u32, OperationError>,
}

impl PendingRecovery {
    /// Whether there is a keeper.
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
                "; stasis process {pid} tries again until all processes of the container have their \
                 GPU: continue what is stopped, or kill the container"
            ),
            Err(error) => write!(
                f,
                "; no process could be started to wait for that ({error}): continue what is \
                 stopped and `resume` the container, or kill it"
            ),
        }
    }
}
