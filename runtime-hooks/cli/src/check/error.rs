//! Why there is no report of a check.

use stasis_engine::error::Refusal;
use stasis_engine::operation::OperationError;
use stasis_locate::LocateError;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There is not exactly one running container with that id.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// An operation on the container is under way.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The container cannot be inspected.
    #[error(transparent)]
    Look(#[from] Refusal),
    /// The container is paused, and driver queries would hang.
    #[error(
        "container {0} is paused, and the driver does not answer for paused processes; resume it \
         and check again (a checkpoint resumes it by itself)"
    )]
    Paused(String),
}
