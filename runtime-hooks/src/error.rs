//! What an operation says when it fails: what was being done, what was said, how things are now.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use stasis_memory_store::StoreError;

use crate::aftermath::Aftermath;
use crate::blocker::Blockers;
use crate::cgroup::FreezerError;
use crate::container::ContainerError;
use crate::cuda::OpenError;
use crate::denial::Denial;
use crate::fault::{Cause, Fault, JobError};
use crate::gpu::InventoryError;
use crate::host_memory::NoHostMemory;
use crate::leftovers::LeftoversError;
pub use crate::low_level::LowLevelFailure;
use crate::manifest::ManifestError;
use crate::memory_restore::{MemoryDenial, WithoutMemory};
use crate::operation::OperationError;
use crate::spec::SpecError;

/// The operations that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// An OCI checkpoint.
    Checkpoint,
    /// An OCI restore.
    Restore,
    /// An OCI resume.
    Resume,
    /// What a guardian does.
    Guard,
}

/// Why an operation ended without what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It did not begin.
    #[error(
        "{verb} of container {id} refused: {}; nothing was changed",
        chain(&**reason)
    )]
    Refused {
        /// What was asked for.
        verb: Verb,
        /// The container.
        id: String,
        /// Why.
        reason: Box<Refusal>,
    },
    /// It failed on the way.
    #[error("{verb} of container {id} failed: {}; {aftermath}", chain(&**cause))]
    Failed {
        /// What was asked for.
        verb: Verb,
        /// The container.
        id: String,
        /// Why.
        cause: Box<Failure>,
        /// How things are now.
        aftermath: Box<Aftermath>,
    },
}

/// Why an operation did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The container or its processes cannot be looked at.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Another operation is under way, or the state directory cannot be used.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A process uses a GPU, and the driver library cannot be used.
    #[error(transparent)]
    Driver(#[from] OpenError),
    /// The GPUs cannot be looked at.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// The freezer cannot be read.
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    /// The image's manifest cannot be believed or made way for.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// There is no host memory for the GPU contents.
    #[error(transparent)]
    HostMemory(#[from] NoHostMemory),
    /// What an earlier checkpoint left in the image directory cannot be removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A process cannot be checkpointed.
    #[error(transparent)]
    Process(#[from] Fault),
    /// Processes are what no checkpoint or restore is known to survive.
    #[error(transparent)]
    Blocked(#[from] Blockers),
    /// A directory cannot be used.
    #[error("cannot use {what} {path}")]
    Directory {
        /// Which one.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Iterative dumps are impossible while GPU memory is mapped.
    #[error(
        "process {pid} ({name}) uses CUDA, and memory cannot be dumped in advance (--pre-dump) \
         while it is on the GPU; checkpoint without --pre-dump"
    )]
    PreDump {
        /// A CUDA process.
        pid: i32,
        /// Its command name.
        name: String,
    },
    /// Bulk memory of the image cannot be restored.
    #[error(transparent)]
    Memory(#[from] MemoryDenial),
    /// This machine or the new container cannot take the GPU state.
    #[error(transparent)]
    Denied(#[from] Denial),
}

/// Why an operation that had begun failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A CUDA process could not be locked, checkpointed, restored or unlocked.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The processes that were locked cannot be described.
    #[error(transparent)]
    Look(#[from] Refusal),
    /// A restored process is not what the image says.
    #[error(transparent)]
    Process(#[from] Fault),
    /// The same, with the room on the GPUs that it was restored to.
    #[error("{fault}; {room}")]
    OutOfGpuMemory {
        /// The process and what the driver said.
        fault: String,
        /// Needed and free memory of each of its GPUs.
        room: String,
    },
    /// The bundle's specification could not be changed.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The container's device nodes could not be made.
    #[error("cannot make the container's device nodes")]
    DeviceNodes(#[source] io::Error),
    /// The freezer did not do as it was told.
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    /// What a forked child inherited of the GPU is in the way.
    #[error(transparent)]
    Leftovers(#[from] LeftoversError),
    /// There is no host memory for the GPU contents.
    #[error(transparent)]
    HostMemory(#[from] NoHostMemory),
    /// The manifest could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// What an earlier checkpoint left in the image directory cannot be removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record of the operation could not be written.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The low-level runtime could not be started.
    #[error("cannot start {path}")]
    Start {
        /// The low-level runtime.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The low-level runtime, or CRIU below it, failed.
    #[error("{0}")]
    LowLevel(Box<LowLevelFailure>),
    /// The same, because a process started CUDA after it was looked at.
    #[error("{newcomer} started CUDA while the container was being checkpointed: {dump}")]
    Overtaken {
        /// The process.
        newcomer: String,
        /// What the low-level runtime said.
        dump: Box<LowLevelFailure>,
    },
    /// The same, of an image of another driver.
    #[error(
        "{failure}; the image was made with driver {image}, and this machine has {here}: what its \
         processes have mapped of the driver's libraries, libcuda above all, must be the same file"
    )]
    OtherDriver {
        /// What failed.
        failure: Box<LowLevelFailure>,
        /// The driver of the image.
        image: String,
        /// The driver of this machine.
        here: String,
    },
    /// Bulk memory cannot be given a name.
    #[error("no random number can be had for the image")]
    ImageId(#[source] io::Error),
    /// A dump succeeded, and tasks that were to go on have not got their memory again.
    #[error("the memory of its processes could not be given back: {0}")]
    NotReturned(String),
    /// CRIU brought the processes back without their bulk memory.
    #[error(transparent)]
    WithoutMemory(#[from] WithoutMemory),
    /// The restored container cannot be looked at.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// CRIU did not bring back a process of the image.
    #[error("process {pid} ({name}) of the image is not in the restored container")]
    MissingProcess {
        /// Its pid in the container.
        pid: i32,
        /// Its command name at checkpoint.
        name: String,
    },
    /// Not all processes could be asked.
    #[error("not every process answers the driver")]
    Unanswered,
    /// A signal asked the operation to end.
    #[error("a signal asked for it to end")]
    Cancelled,
}

/// An error and its sources as one line, each said once.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

impl Error {
    /// Where CRIU's log of the failed operation was kept.
    #[must_use]
    pub fn criu_log(&self) -> Option<&Path> {
        let Self::Failed { cause, .. } = self else {
            return None;
        };
        let dump = match &**cause {
            Failure::LowLevel(failure) => failure,
            Failure::Overtaken { dump, .. } => dump,
            Failure::OtherDriver { failure, .. } => failure,
            _ => return None,
        };
        dump.log.as_ref().map(|log| log.path.as_path())
    }

    /// Whether only a process that started CUDA meanwhile was in the way, and all is as it was.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Failed {
                cause, aftermath, ..
            } => {
                matches!(**cause, Failure::Overtaken { .. })
                    && matches!(**aftermath, Aftermath::Unharmed(_) | Aftermath::AsBefore(_))
            }
            Self::Refused { .. } => false,
        }
    }

    pub(crate) fn refused(verb: Verb, id: &str, reason: impl Into<Refusal>) -> Self {
        Self::Refused {
            verb,
            id: id.to_owned(),
            reason: Box::new(reason.into()),
        }
    }

    pub(crate) fn failed(
        verb: Verb,
        id: &str,
        cause: impl Into<Failure>,
        aftermath: Aftermath,
    ) -> Self {
        let (cause, aftermath) = (Box::new(cause.into()), Box::new(aftermath));
        Self::Failed {
            verb,
            id: id.to_owned(),
            cause,
            aftermath,
        }
    }
}

impl Failure {
    /// Processes that the failed step itself could not bring back.
    pub(crate) fn take_lost(&mut self) -> Vec<Fault> {
        match self {
            Self::Job(error) => std::mem::take(&mut error.lost),
            _ => Vec::new(),
        }
    }

    /// Whether processes are without memory that was taken of them.
    pub(crate) fn is_without_memory(&self) -> bool {
        matches!(self, Self::LowLevel(failure) if failure.memory.not_returned.is_some())
    }

    /// The process that the driver had no room for, if that is what failed.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&Fault> {
        use crate::cuda::CudaError::OutOfMemory;
        match self {
            Self::Job(error) if matches!(error.fault.cause, Cause::Driver(OutOfMemory)) => {
                Some(&error.fault)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
            Self::Resume => "resume",
            Self::Guard => "guard",
        })
    }
}
