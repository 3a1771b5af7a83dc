//! Recovery of processes that do not answer the driver.
//!
//! An operation does not wait for a stopped process, but its driver calls may still take effect
//! there: locked processes stay locked, and a pending lock takes effect if the process continues
//! before its caller has ended (measured on driver 580.159). So before such a failure is reported,
//! this program starts itself once more, detached from the caller. That recovery process polls the
//! container, holds no lock between polls, and once every process can answer, brings all of them
//! back to how they were found and ends. It also ends with the container, and when the intent of
//! its operation is gone or has another token: then another operation has finished the recovery.

pub mod daemon;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_config::{Deadlines, Driver, LowLevel, Paths};

use crate::container::Container;
use crate::context::Context;
use crate::cuda::failure::ProcessFailure;
use crate::error::pending_recovery::{PendingRecovery, StartError};
use crate::host::respawn;
use crate::operation::Operation;

/// The first argument of a recovery process; neither runc nor crun has this verb. The second is
/// its [`RecoveryJob`].
const VERB: &str = "stasis-recovery";

/// The input of a recovery process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoveryJob {
    pub(crate) driver: Driver,
    pub(crate) deadlines: Deadlines,
    pub(crate) paths: Paths,
    pub(crate) low_level: LowLevel,
    pub(crate) root: PathBuf,
    pub(crate) id: String,
    /// The container's init process: the job ends with it.
    pub(crate) init: i32,
    pub(crate) init_start_time: u64,
    /// The token of this job, which is also in the intent.
    pub(crate) token: u64,
}

/// Starts a recovery process for the processes that an operation could not bring back, if each of
/// them merely does not answer now.
///
/// # Errors
/// Returns `lost` if it is empty, or if waiting does not help one of the processes.
pub(crate) fn start_recovery(
    context: &Context,
    operation: &Operation,
    container: &Container,
    lost: Vec<ProcessFailure>,
) -> Result<PendingRecovery, Vec<ProcessFailure>> {
    if lost.is_empty() || !lost.iter().all(ProcessFailure::may_pass) {
        return Err(lost);
    }
    Ok(PendingRecovery {
        processes: lost,
        recovery: start(context, operation, container),
    })
}

fn start(
    context: &Context,
    operation: &Operation,
    container: &Container,
) -> Result<u32, StartError> {
    let token = fastrand::u64(..);
    // The token is recorded first: a recovery process that does not find it ends.
    if let Some(intent) = operation.recorded()? {
        operation.record(&intent.recovered_by(token))?;
    }
    let job = RecoveryJob {
        driver: context.settings.driver.clone(),
        deadlines: context.settings.deadlines.clone(),
        paths: context.settings.paths.clone(),
        low_level: context.low_level.clone(),
        root: context.root.clone(),
        id: container.id().to_owned(),
        init: container.init().pid(),
        init_start_time: container.init().start_time(),
        token,
    };
    Ok(respawn::start(VERB, &job)?)
}

impl RecoveryJob {
    /// Reads the job of this process, if it was started as a recovery process.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-recovery")
    }
}
