//! What waits for a process that does not answer the driver.
//!
//! An operation does not wait for a stopped process, but what it had begun there may be in force: locked
//! processes stay locked, and a lock that was waiting takes effect if the process goes on before its caller
//! has ended (measured on driver 580.159). So before such a failure is reported, this program starts itself once
//! more, detached from the caller. That guardian looks at the container now and then, holds nothing meanwhile, and
//! once every process can answer, brings all of them back to RUNNING and ends. It also ends with the container,
//! and when the record of the operation that left it is gone or another's: then somebody else has put it right.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_config::{Deadlines, Driver, LowLevel, Paths};

use crate::container::Container;
use crate::detached;
use crate::engine::Engine;
use crate::fault::{Fault, list};
use crate::operation::{Operation, OperationError};

/// The first argument of a guardian; no verb of runc or crun. The second is its [`Charge`].
const VERB: &str = "stasis-guardian";

/// All that a guardian is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Charge {
    pub(crate) driver: Driver,
    pub(crate) deadlines: Deadlines,
    pub(crate) paths: Paths,
    pub(crate) low_level: LowLevel,
    pub(crate) root: PathBuf,
    pub(crate) id: String,
    /// The container's init process: with it the charge ends.
    pub(crate) init: i32,
    pub(crate) init_start_time: u64,
    /// Also in the record: whose it is.
    pub(crate) token: u64,
}

/// Processes that do not answer, and what waits for them.
#[derive(Debug)]
pub struct Waiting {
    processes: Vec<Fault>,
    guardian: Result<u32, StartError>,
}

/// Why there is no guardian.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Record(#[from] OperationError),
    #[error("{0}")]
    Start(#[from] io::Error),
}

/// Leaves processes that an operation could not bring back to a guardian, if all that is known of them is that
/// they do not answer now.
///
/// # Errors
/// `lost` itself, if there is none, or one that is not to be waited for.
pub(crate) fn entrust(
    engine: &Engine,
    operation: &Operation,
    container: &Container,
    lost: Vec<Fault>,
) -> Result<Waiting, Vec<Fault>> {
    if lost.is_empty() || !lost.iter().all(Fault::may_pass) {
        return Err(lost);
    }
    Ok(Waiting {
        processes: lost,
        guardian: start(engine, operation, container),
    })
}

fn start(engine: &Engine, operation: &Operation, container: &Container) -> Result<u32, StartError> {
    let token = fastrand::u64(..);
    // Recorded first: a guardian that does not find its token ends.
    if let Some(intent) = operation.recorded()? {
        operation.record(&intent.guarded_by(token))?;
    }
    let charge = Charge {
        driver: engine.settings.driver.clone(),
        deadlines: engine.settings.deadlines.clone(),
        paths: engine.settings.paths.clone(),
        low_level: engine.low_level.clone(),
        root: engine.root.clone(),
        id: container.id().to_owned(),
        init: container.init().pid(),
        init_start_time: container.init().start_time(),
        token,
    };
    Ok(detached::start(VERB, &charge)?)
}

impl Charge {
    /// The charge of this process, if it was started as a guardian.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        detached::charge_of(VERB, c"stasis-guardian")
    }
}

impl Waiting {
    /// Whether somebody really waits.
    pub(crate) fn has_guardian(&self) -> bool {
        self.guardian.is_ok()
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", list(&self.processes))?;
        match &self.guardian {
            Ok(pid) => write!(
                f,
                "; stasis process {pid} waits until all processes of the container answer and \
                 then lets them go on with their GPU: continue what is stopped, or kill the container"
            ),
            Err(error) => write!(
                f,
                "; no process could be started to wait for that ({error}): continue what is \
                 stopped and `resume` the container, or kill it"
            ),
        }
    }
}
