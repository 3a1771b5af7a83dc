//! Why an operation did not begin.

use std::io;
use std::path::PathBuf;

use stasis_gpu::cuda::OpenError;
use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::cuda::nvml::InventoryError;
use stasis_linux::cgroup::FreezerError;
use stasis_memory_store::StoreError;

use crate::container::ContainerError;
use crate::container::criu_configuration::CriuConfigurationError;
use crate::container::hooks::InvalidHook;
use crate::container::host_memory::NoHostMemory;
use crate::error::admission::AdmissionError;
use crate::error::bulk_memory::BulkMemoryError;
use crate::error::hold::HoldError;
use crate::error::reason::Reason;
use crate::image::allowed::NotAllowed;
use crate::image::directory::ImageDirectoryError;
use crate::image::disk_space::NoDiskSpace;
use crate::image::files::FileError;
use crate::image::manifest::ManifestError;
use crate::image::work_directory::WorkDirectoryError;
use crate::operation::OperationError;
use crate::preflight::blocker::Blockers;
use crate::preflight::capabilities::UnusableCriu;
use crate::preflight::cuda_processes::FindError;

/// Why an operation did not begin.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error(transparent)]
    Container(#[from] ContainerError),
    #[error(transparent)]
    CriuConfiguration(#[from] CriuConfigurationError),
    #[error(transparent)]
    Hook(#[from] InvalidHook),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Driver(#[from] OpenError),
    #[error(transparent)]
    Criu(#[from] UnusableCriu),
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    /// The image's manifest is not valid, or an earlier one cannot be removed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("the GPU contents that its paused processes wait for cannot be given back to them")]
    GpuContents(#[source] io::Error),
    #[error(transparent)]
    HostMemory(#[from] NoHostMemory),
    /// The files of an earlier checkpoint in the image directory cannot be removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Process(#[from] ProcessFailure),
    #[error(transparent)]
    Blocked(#[from] Blockers),
    #[error("cannot use {what} {path}")]
    Directory {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "CRIU opens the image as user {uid}, who is root in the container's user namespace and may \
         not open {path}; let all users search the image's directory (chmod o+x) and read its *.img \
         (chmod o+r), and keep others out by a directory above it"
    )]
    UserNamespace {
        path: PathBuf,
        uid: u32,
        source: io::Error,
    },
    /// CRIU cannot dump memory in advance while GPU memory is mapped.
    #[error(
        "process {pid} ({name}) uses CUDA, and memory cannot be dumped in advance (--pre-dump) \
         while it is on the GPU; checkpoint without --pre-dump"
    )]
    PreDump { pid: i32, name: String },
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    #[error(transparent)]
    ImageDirectory(#[from] ImageDirectoryError),
    #[error(transparent)]
    WorkDirectory(#[from] WorkDirectoryError),
    #[error(transparent)]
    NoDiskSpace(#[from] NoDiskSpace),
    #[error(transparent)]
    ImageFile(#[from] FileError),
    #[error(transparent)]
    Memory(#[from] BulkMemoryError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error(transparent)]
    Reason(#[from] Reason),
    #[error(transparent)]
    Denied(#[from] AdmissionError),
}

impl From<FindError> for Refusal {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Processes(error) => Self::Container(ContainerError::Processes(error)),
            FindError::Driver(error) => Self::Driver(error),
            FindError::Process(fault) => Self::Process(fault),
        }
    }
}
