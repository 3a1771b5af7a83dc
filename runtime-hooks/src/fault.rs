//! What can go wrong with one CUDA process, and what became of the others.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::cuda::{CudaError, CudaState};
use crate::process::ProcessRef;
use crate::stop::Stop;

/// How long the kernel may take to end a process that has crashed.
const DYING: Duration = Duration::from_millis(200);

/// The driver call during which a member failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reading a state.
    Look,
    /// RUNNING to LOCKED.
    Lock,
    /// LOCKED to CHECKPOINTED.
    Checkpoint,
    /// CHECKPOINTED to LOCKED.
    Restore,
    /// LOCKED to RUNNING.
    Unlock,
}

/// What went wrong with one process.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The driver refused.
    #[error("the driver says {0}")]
    Driver(CudaError),
    /// The driver's call has not come back; it may still take effect.
    #[error("the driver's call did not come back within {:.1} s", .0.as_secs_f64())]
    NoAnswer(Duration),
    /// The driver said yes, and the state is another one.
    #[error("the driver left it {0}")]
    State(CudaState),
    /// The lock was not had in time.
    #[error("not locked within {} ms: its submitted work did not finish", .0.as_millis())]
    Deadline(Duration),
    /// The process is stopped: the driver would wait for it for ever, even to tell its state.
    #[error("{0}, and cannot answer the driver")]
    Stopped(Stop),
    /// It uses a GPU, and there is no driver library to ask.
    #[error("it has an NVIDIA device open, and there is no driver to ask about it")]
    NoDriver,
    /// It ended in the middle.
    #[error("it ended")]
    Gone,
    /// `/proc` could not be read.
    #[error("cannot look at it")]
    Io(#[from] io::Error),
}

/// One process that a step failed on.
#[derive(Debug)]
pub struct Fault {
    /// What was being done.
    pub step: Step,
    /// The pid in our namespace.
    pub pid: i32,
    /// Its command name.
    pub name: String,
    /// Why.
    pub cause: Cause,
}

/// A step failed. Every member that is not listed in `lost` runs on as before.
#[derive(Debug)]
pub struct JobError {
    /// The first process that failed.
    pub fault: Fault,
    /// Processes that could not be brought back to RUNNING.
    pub lost: Vec<Fault>,
}

impl From<CudaError> for Cause {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::NoAnswer(waited) => Self::NoAnswer(waited),
            answer => Self::Driver(answer),
        }
    }
}

impl Fault {
    /// Whether the process is only out of reach now, so that nothing is known to be lost.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self.cause, Cause::Stopped(_) | Cause::NoAnswer(_))
    }

    /// The processes of the container of this init process could not be looked at.
    pub(crate) fn of_look(init: &ProcessRef, error: io::Error) -> Self {
        Self::of(Step::Look, init, error)
    }

    /// The fault of `process` at `step`. That it has ended outweighs whatever else was seen; a
    /// process that crashes is refused by the driver a moment before it is gone.
    pub(crate) fn of(step: Step, process: &ProcessRef, cause: impl Into<Cause>) -> Self {
        let cause = match cause.into() {
            cause @ Cause::Driver(CudaError::NotReady) => cause,
            Cause::Driver(_) if matches!(process.outlives(DYING), Ok(false)) => Cause::Gone,
            _ if process.is_gone() => Cause::Gone,
            cause => cause,
        };
        Self {
            step,
            pid: process.pid(),
            name: process.name().to_owned(),
            cause,
        }
    }
}

/// Faults in one line.
pub(crate) fn list(faults: &[Fault]) -> String {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "state query",
            Self::Lock => "lock",
            Self::Checkpoint => "gpu checkpoint",
            Self::Restore => "gpu restore",
            Self::Unlock => "unlock",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of process {} ({}): {}",
            self.step, self.pid, self.name, self.cause
        )?;
        if self.step == Step::Checkpoint
            && matches!(self.cause, Cause::Driver(CudaError::NotSupported))
        {
            f.write_str(
                ": it holds what this driver cannot save, most likely managed memory \
                 (cudaMallocManaged) or memory that it shares with another process",
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)
    }
}

impl std::error::Error for JobError {}
