//! The failure of a step on one CUDA process, and the processes that it left lost.

use std::fmt;
use std::io;
use std::time::Duration;

use stasis_host::deadline::{PROC, within};
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{count_mappings, most_mappings};

use crate::cuda::stopped::Stop;
use crate::cuda::{CudaError, CudaState, GpuUuid};

/// The most time until a crashed process is seen to end.
const CRASHED: Duration = Duration::from_millis(200);
/// The most time for the kernel to end a dying process.
const DYING: Duration = Duration::from_secs(5);
/// The driver and libc unmap again the mappings that they made until one more was refused.
const FEW_MAPPINGS: usize = 64;

/// The driver call during which a member failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reading a state.
    Query,
    /// RUNNING to LOCKED.
    Lock,
    /// LOCKED to CHECKPOINTED.
    Checkpoint,
    /// CHECKPOINTED to LOCKED.
    Restore,
    /// LOCKED to RUNNING.
    Unlock,
}

/// The cause of a process's failure.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Cause {
    #[error("the driver returned {0}")]
    Driver(CudaError),
    /// The process lacks contents or memory that a checkpoint has taken away from it.
    #[error("{}, and so the driver was not asked", .0.name())]
    NotAsked(CudaError),
    #[error(
        "the driver returned {}, and the process has {count} mappings of the {most} that it may have \
         (vm.max_map_count): there may be memory enough, but nothing can be mapped; raise that limit \
         with sysctl, or have the program map less",
        CudaError::OutOfMemory
    )]
    NoMappings { count: usize, most: usize },
    /// The driver call did not return in time; it may still take effect.
    #[error("the driver's call did not come back within {:.1} s", .0.as_secs_f64())]
    NoAnswer(Duration),
    #[error("the driver call succeeded, but the process is {0}")]
    State(CudaState),
    #[error("not locked within {} ms: its submitted work did not finish", .0.as_millis())]
    Deadline(Duration),
    /// The process is stopped: even a state query of the driver would wait for it for ever.
    #[error("{0}, and cannot answer the driver")]
    Stopped(Stop),
    /// The process could not be restored to the GPUs of a map, and stays CHECKPOINTED.
    #[error("it stays suspended, as the GPUs of the map do not take it")]
    Suspended,
    /// A GPU has no room for the process, which stays CHECKPOINTED.
    #[error("{0}")]
    NoRoom(Box<NoRoom>),
    #[error("it has an NVIDIA device open, and there is no driver to ask about it")]
    NoDriver,
    #[error(
        "no thread can be started for the driver's call (pids.max or TasksMax of stasis' own \
         cgroup?)"
    )]
    NoThread(#[source] io::Error),
    #[error("a thread panicked, which is a fault in stasis")]
    Panic,
    /// No process has the contents that the driver would restore; the driver was not asked.
    #[error(
        "its GPU contents are lost: who held them for its resume was killed, and the image that \
         has them is gone (if it is put back where it was, `resume` finds them)"
    )]
    ContentsLost,
    #[error("it ended")]
    Gone,
    #[error("what is recorded of it cannot be read")]
    Unrecorded,
    #[error("cannot read its state in /proc")]
    Io(#[from] io::Error),
}

/// A GPU lacks room. The driver has not been asked, and nothing is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The GPU.
    pub uuid: GpuUuid,
    /// Bytes needed, by all processes together.
    pub needed: u64,
    /// The free memory: "39 MiB".
    pub free: String,
    /// Text behind `free`: the memory of it that others have reserved, or why that is not known;
    /// empty if they have reserved nothing.
    pub reserved: String,
}

/// One process that a step failed on.
#[derive(Debug)]
pub struct ProcessFailure {
    /// The step.
    pub step: Step,
    /// The pid in our namespace.
    pub pid: i32,
    /// Its command name.
    pub name: String,
    /// The cause.
    pub cause: Cause,
}

/// A step failed. Every member that is not listed in `lost` runs on as before.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct JobError {
    /// The first process that failed.
    pub fault: ProcessFailure,
    /// Processes that could not be brought back to RUNNING.
    pub lost: Vec<ProcessFailure>,
}

impl From<CudaError> for Cause {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::NoAnswer(waited) => Self::NoAnswer(waited),
            CudaError::NoThread(code) => Self::NoThread(io::Error::from_raw_os_error(code)),
            CudaError::Ended => Self::Gone,
            CudaError::ContentsLost => Self::ContentsLost,
            CudaError::ContentsAway | CudaError::SharedMemoryAway | CudaError::SharedMemoryLost => {
                Self::NotAsked(error)
            }
            answer => Self::Driver(answer),
        }
    }
}

impl Cause {
    /// Returns the cause if a process has nearly as many mappings as it may have.
    fn no_mappings(pid: i32) -> Option<Self> {
        let most = most_mappings().ok()?;
        let count = within(PROC, move || count_mappings(pid)).ok()?.ok()?;
        (count + FEW_MAPPINGS >= most).then_some(Self::NoMappings { count, most })
    }
}

impl ProcessFailure {
    /// Whether the failure may be temporary: the process cannot be reached or restored now, but is
    /// not known to be lost.
    pub fn may_pass(&self) -> bool {
        matches!(
            self.cause,
            Cause::Stopped(_)
                | Cause::NoAnswer(_)
                | Cause::NoThread(_)
                | Cause::NoRoom(_)
                | Cause::Io(_)
                | Cause::NotAsked(CudaError::ContentsAway | CudaError::SharedMemoryAway)
        ) || self.is_not_permitted()
    }

    /// Whether the driver refuses to restore to an uninitialised GPU. That changes nothing.
    fn is_not_permitted(&self) -> bool {
        self.step == Step::Restore && matches!(self.cause, Cause::Driver(CudaError::NotPermitted))
    }

    /// Whether the process stays suspended.
    pub fn is_suspended(&self) -> bool {
        matches!(self.cause, Cause::Suspended)
    }

    /// Whether the process waits for room on a GPU.
    pub fn lacks_room(&self) -> bool {
        matches!(self.cause, Cause::NoRoom(_))
    }

    /// The failure to read the processes of the container with this init process.
    pub fn of_query(init: &ProcessRef, error: io::Error) -> Self {
        Self::of(Step::Query, init, error)
    }

    /// The failure of `process` at `step`. If the process has ended, that is the cause: the driver
    /// returns errors, or another state, for a crashing process a moment before it is gone.
    pub fn of(step: Step, process: &ProcessRef, cause: impl Into<Cause>) -> Self {
        let cause = match cause.into() {
            cause @ Cause::Driver(CudaError::NotReady) => cause,
            Cause::Driver(_) | Cause::NotAsked(_) | Cause::State(_) if ends(process) => Cause::Gone,
            _ if process.is_gone() => Cause::Gone,
            cause @ Cause::Driver(CudaError::OutOfMemory) => {
                Cause::no_mappings(process.pid()).unwrap_or(cause)
            }
            // The process was stopped after the check that precedes each query.
            cause @ Cause::NoAnswer(_) if step == Step::Query => match Stop::lasting(process.pid())
            {
                Ok(Some(stop)) => Cause::Stopped(stop),
                Ok(None) | Err(_) => cause,
            },
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

fn ends(process: &ProcessRef) -> bool {
    let ends_within = |limit| matches!(process.outlives(limit), Ok(false));
    ends_within(CRASHED) || matches!(process.is_dying(), Ok(true)) && ends_within(DYING)
}

/// Lists failures in one line.
pub fn list(failures: &[ProcessFailure]) -> String {
    let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            uuid,
            needed,
            free,
            reserved,
        } = self;
        write!(
            f,
            "{uuid} has {free} free{reserved}, and its container needs {} MiB there: the driver \
             was not asked, and its GPU contents are safe in host memory",
            needed.div_ceil(1 << 20)
        )
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Query => "state query",
            Self::Lock => "lock",
            Self::Checkpoint => "gpu checkpoint",
            Self::Restore => "gpu restore",
            Self::Unlock => "unlock",
        })
    }
}

impl fmt::Display for ProcessFailure {
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
        if self.is_not_permitted() {
            f.write_str(
                ": its GPU is not initialised; switch persistence mode on (nvidia-smi -pm 1)",
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for ProcessFailure {}
