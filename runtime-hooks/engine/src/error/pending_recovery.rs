//! Processes that do not answer the driver, or for which a GPU has no room, and the keeper that
//! waits for that.

use std::fmt;

use stasis_gpu::cuda::failure::{ProcessFailure, list};

use crate::operation::OperationError;

/// Processes that do not answer, or lack room, and the keeper's pid.
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

    /// Whether one of them needs room on a GPU.
    pub(crate) fn lacks_room(&self) -> bool {
        self.processes.iter().any(ProcessFailure::lacks_room)
    }
}

impl fmt::Display for PendingRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", list(&self.processes))?;
        match &self.recovery {
            Ok(pid) if self.lacks_room() => write!(
                f,
                "; stasis process {pid} gives them their GPU back by itself as soon as there is \
                 room and all processes of the container answer: make room, or kill the container"
            ),
            Err(error) if self.lacks_room() => write!(
                f,
                "; no process could be started to wait for that ({error}): make room and run \
                 `stasis recover`, or kill the container"
            ),
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
