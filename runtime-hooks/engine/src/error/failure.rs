//! Why an operation failed after it had begun.

use std::io;
use std::path::PathBuf;

use stasis_config::LowLevel;
use stasis_gpu::cuda::CudaState;
use stasis_gpu::cuda::failure::Cause;
use stasis_gpu::cuda::failure::JobError;
use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::gpu_path::Unanswered;
use stasis_linux::cgroup::FreezerError;
use stasis_memory_store::StoreError;

use crate::container::ContainerError;
use crate::container::host_memory::NoHostMemory;
use crate::container::inherited_devices::InheritedDevicesError;
use crate::container::spec::SpecError;
use crate::error::hold::HoldError;
use crate::error::low_level::LowLevelFailure;
use crate::error::reason::Reason;
use crate::error::refusal::Refusal;
use crate::image::directory::ImageDirectoryError;
use crate::image::files::FileError;
use crate::image::manifest::ManifestError;
use crate::image::pstree::PstreeError;
use crate::low_level::hook::{HookError, Unsuccessful};
use crate::operation::OperationError;

/// Why an operation that had begun failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Failure {
    #[error(transparent)]
    Job(#[from] JobError),
    /// The locked processes cannot be described.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A restored process is not as the image describes it.
    #[error(transparent)]
    Process(#[from] ProcessFailure),
    #[error("{fault}; {room}")]
    OutOfGpuMemory { fault: String, room: String },
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("cannot make the container's device nodes")]
    DeviceNodes(#[source] io::Error),
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    #[error(transparent)]
    InheritedDevices(#[from] InheritedDevicesError),
    #[error("the GPU contents of a suspended process cannot be made memory that CRIU can dump")]
    ContentsInFile(#[source] io::Error),
    #[error("the GPU contents of its processes cannot be moved between memory and the store")]
    GpuContents(#[source] io::Error),
    #[error("it is not known what GPU memory its processes share, or it cannot be given up")]
    SharedMemory(#[source] io::Error),
    #[error(transparent)]
    HostMemory(#[from] NoHostMemory),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The files of an earlier checkpoint in the image directory cannot be removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    ImageFile(#[from] FileError),
    /// CRIU's images do not match the record.
    #[error(transparent)]
    Pstree(#[from] PstreeError),
    #[error(transparent)]
    ImageDirectory(#[from] ImageDirectoryError),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Hook(HookError),
    #[error("cannot run {path}")]
    Start { path: PathBuf, source: io::Error },
    #[error("{0}")]
    LowLevel(Box<LowLevelFailure>),
    #[error("{late} started CUDA while the container was being checkpointed: {dump}")]
    CudaStartedDuringDump {
        late: String,
        dump: Box<LowLevelFailure>,
    },
    #[error(
        "{failure}; the image was made with driver {image}, and this machine has {here}: what its \
         processes have mapped of the driver's libraries, libcuda above all, must be the same file"
    )]
    OtherDriver {
        failure: Box<LowLevelFailure>,
        image: String,
        here: String,
    },
    #[error("no random number can be had for the image")]
    ImageId(#[source] io::Error),
    #[error(transparent)]
    Container(#[from] ContainerError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error("process {pid} ({name}) of the image is not in the restored container")]
    MissingProcess { pid: i32, name: String },
    #[error(
        "process {pid} of the container ({name}) is {state} and not RUNNING: the image has its GPU \
         state, but the stasis.json of the image is missing or does not list this process; restore \
         from a whole copy of the image"
    )]
    NotRunning {
        pid: i32,
        name: String,
        state: CudaState,
    },
    #[error("a GPU has no room for the contents that the container had on it")]
    NoRoom,
    #[error("not every process answers the driver")]
    Unanswered,
    #[error("a {verb} was cut off")]
    CutOff { verb: &'static str },
    #[error(transparent)]
    Reason(#[from] Reason),
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

    /// Returns whether a disk, or a file server, does not finish writes.
    pub(crate) fn is_of_a_disk_that_hangs(&self) -> bool {
        let Self::ImageDirectory(ImageDirectoryError::NotOnDisk { source, .. }) = self else {
            return false;
        };
        source.kind() == io::ErrorKind::TimedOut
    }

    /// The process for which the GPU had too little memory, if that was the cause.
    pub(crate) fn out_of_memory(&self) -> Option<&ProcessFailure> {
        use stasis_gpu::cuda::CudaError::OutOfMemory;
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
