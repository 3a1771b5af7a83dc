//! Why an operation failed after it had begun.

use std::io;
use std::path::PathBuf;

use stasis_config::LowLevel;
use stasis_linux::cgroup::FreezerError;
use stasis_memory_store::StoreError;

use crate::container::ContainerError;
use crate::container::host_memory::NoHostMemory;
use crate::container::inherited_devices::InheritedDevicesError;
use crate::container::spec::SpecError;
use crate::cuda::CudaState;
use crate::cuda::failure::Cause;
use crate::cuda::failure::JobError;
use crate::cuda::failure::ProcessFailure;
use crate::error::first_image::NoFirstImage;
use crate::error::low_level::LowLevelFailure;
use crate::error::refusal::Refusal;
use crate::gpu_path::Unanswered;
use crate::image::directory::ImageDirectoryError;
use crate::image::files::FileError;
use crate::image::manifest::ManifestError;
use crate::image::pstree::PstreeError;
use crate::low_level::hook::{HookError, Unsuccessful};
use crate::operation::OperationError;

/// Why an operation that had begun failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A CUDA process could not be locked, checkpointed, restored or unlocked.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The locked processes cannot be described.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A restored process is not as the image describes it.
    #[error(transparent)]
    Process(#[from] ProcessFailure),
    /// The same, with the free memory of the GPUs that it was restored to.
    #[error("{fault}; {room}")]
    OutOfGpuMemory {
        /// The process and the driver's error.
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
    /// The freezer did not change its state.
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    /// A forked child still holds GPU devices that it inherited.
    #[error(transparent)]
    InheritedDevices(#[from] InheritedDevicesError),
    /// What a suspended process keeps in a file in memory cannot become memory of its own.
    #[error("the GPU contents of a suspended process cannot be made memory that CRIU can dump")]
    ContentsInFile(#[source] io::Error),
    /// GPU contents in files could not be stored, or not be moved out of the dump's way, or not be
    /// brought back from the store.
    #[error("the GPU contents of its processes cannot be moved between memory and the store")]
    GpuContents(#[source] io::Error),
    /// There is no host memory for the GPU contents.
    #[error(transparent)]
    HostMemory(#[from] NoHostMemory),
    /// The manifest could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The files of an earlier checkpoint in the image directory cannot be removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files of the image cannot be listed.
    #[error(transparent)]
    ImageFile(#[from] FileError),
    /// What CRIU has dumped is not what was recorded.
    #[error(transparent)]
    Pstree(#[from] PstreeError),
    /// The image could not take its place.
    #[error(transparent)]
    ImageDirectory(#[from] ImageDirectoryError),
    /// The record of the operation could not be written.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The program in the container could not be told of the checkpoint.
    #[error(transparent)]
    Hook(HookError),
    /// The low-level runtime could not be started, or had to be ended.
    #[error("cannot run {path}")]
    Start {
        /// The low-level runtime.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The low-level runtime, or CRIU below it, failed.
    #[error("{0}")]
    LowLevel(Box<LowLevelFailure>),
    /// The dump failed because a process started CUDA after the pre-flight.
    #[error("{late} started CUDA while the container was being checkpointed: {dump}")]
    CudaStartedDuringDump {
        /// The process.
        late: String,
        /// The low-level runtime's failure.
        dump: Box<LowLevelFailure>,
    },
    /// The restore failed, and the image was made with another driver.
    #[error(
        "{failure}; the image was made with driver {image}, and this machine has {here}: what its \
         processes have mapped of the driver's libraries, libcuda above all, must be the same file"
    )]
    OtherDriver {
        /// The low-level runtime's failure.
        failure: Box<LowLevelFailure>,
        /// The driver of the image.
        image: String,
        /// The driver of this machine.
        here: String,
    },
    /// No random name can be made for the image's bulk memory.
    #[error("no random number can be had for the image")]
    ImageId(#[source] io::Error),
    /// The restored container cannot be read.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// What CRIU brought back cannot wait for its start as the new container.
    #[error(transparent)]
    FirstImage(#[from] NoFirstImage),
    /// CRIU did not bring back a process of the image.
    #[error("process {pid} ({name}) of the image is not in the restored container")]
    MissingProcess {
        /// Its pid in the container.
        pid: i32,
        /// Its command name at checkpoint.
        name: String,
    },
    /// A restored process cannot use its GPU.
    #[error(
        "process {pid} of the container ({name}) is {state} and not RUNNING: the image has its GPU \
         state, but the stasis.json of the image is missing or does not list this process; restore \
         from a whole copy of the image"
    )]
    NotRunning {
        /// Its pid in the container.
        pid: i32,
        /// Its command name.
        name: String,
        /// Its state in the driver.
        state: CudaState,
    },
    /// Others have taken the room of some processes on their GPUs.
    #[error("a GPU has no room for the contents that the container had on it")]
    NoRoom,
    /// Not all processes answer the driver.
    #[error("not every process answers the driver")]
    Unanswered,
    /// The operation was killed, and what it had begun could not all be undone.
    #[error("a {verb} was cut off")]
    CutOff {
        /// The operation.
        verb: &'static str,
    },
    /// Another container of the group was not checkpointed, or not restored.
    #[error("another container of its group has failed")]
    GroupAbandoned,
    /// Nobody can say what has become of the group.
    #[error("what has become of its group cannot be read")]
    GroupUnknown(#[source] io::Error),
    /// A signal asked the operation to end.
    #[error("a signal asked for it to end")]
    Cancelled,
}

impl Failure {
    /// For `map_err`: the low-level runtime could not be started.
    pub(crate) fn start(low_level: &LowLevel) -> impl FnOnce(io::Error) -> Self {
        let path = low_level.path.clone();
        move |source| Self::Start { path, source }
    }

    /// Takes the processes that the failed step could not roll back.
    pub(crate) fn take_lost(&mut self) -> Vec<ProcessFailure> {
        match self {
            Self::Job(error) => std::mem::take(&mut error.lost),
            _ => Vec::new(),
        }
    }

    /// Whether a disk, or a file server, does not take what is written.
    pub(crate) fn is_of_a_disk_that_hangs(&self) -> bool {
        let Self::ImageDirectory(ImageDirectoryError::NotOnDisk { source, .. }) = self else {
            return false;
        };
        source.kind() == io::ErrorKind::TimedOut
    }

    /// The process for which the GPU had too little memory, if that was the cause.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<&ProcessFailure> {
        use crate::cuda::CudaError::OutOfMemory;
        match self {
            Self::Job(error) if matches!(error.fault.cause, Cause::Driver(OutOfMemory)) => {
                Some(&error.fault)
            }
            _ => None,
        }
    }
}

impl From<HookError> for Failure {
    fn from(error: HookError) -> Self {
        match error.what {
            Unsuccessful::Cancelled => Self::Cancelled,
            _ => Self::Hook(error),
        }
    }
}

impl From<Unanswered> for Failure {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Cancelled => Self::Cancelled,
            Unanswered::Failed(error) => Self::GpuContents(error),
        }
    }
}
