//! Why an operation did not begin.

use std::io;
use std::path::PathBuf;

use stasis_linux::cgroup::FreezerError;
use stasis_memory_store::StoreError;

use crate::container::ContainerError;
use crate::container::criu_configuration::CriuConfigurationError;
use crate::container::hooks::InvalidHook;
use crate::container::host_memory::NoHostMemory;
use crate::cuda::OpenError;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::nvml::InventoryError;
use crate::error::admission::AdmissionError;
use crate::error::bulk_memory::BulkMemoryError;
use crate::error::first_image::NoFirstImage;
use crate::image::allowed::NotAllowed;
use crate::image::directory::ImageDirectoryError;
use crate::image::disk_space::NoDiskSpace;
use crate::image::files::FileError;
use crate::image::manifest::ManifestError;
use crate::image::work_directory::WorkDirectoryError;
use crate::operation::OperationError;
use crate::preflight::blocker::Blockers;
use crate::preflight::cuda_processes::FindError;

/// Why an operation did not begin.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The container or its processes cannot be read.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// An annotation of it gives CRIU a configuration file.
    #[error(transparent)]
    CriuConfiguration(#[from] CriuConfigurationError),
    /// The annotation of a hook cannot be used.
    #[error(transparent)]
    Hook(#[from] InvalidHook),
    /// Another operation is under way, or the state directory cannot be used.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// A process uses a GPU, and the driver library cannot be used.
    #[error(transparent)]
    Driver(#[from] OpenError),
    /// NVML cannot be used.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// The freezer cannot be read.
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    /// The image's manifest is not valid, or an earlier one cannot be removed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// GPU contents that an earlier checkpoint has left for the container's resume cannot be given
    /// back to its processes.
    #[error("the GPU contents that its paused processes wait for cannot be given back to them")]
    GpuContents(#[source] io::Error),
    /// There is no host memory for the GPU contents.
    #[error(transparent)]
    HostMemory(#[from] NoHostMemory),
    /// The files of an earlier checkpoint in the image directory cannot be removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A process cannot be checkpointed.
    #[error(transparent)]
    Process(#[from] ProcessFailure),
    /// The pre-flight found a state that no checkpoint or restore is known to survive.
    #[error(transparent)]
    Blocked(#[from] Blockers),
    /// A directory cannot be used.
    #[error("cannot use {what} {path}")]
    Directory {
        /// The directory's purpose.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The root of the container's user namespace cannot be let into the image.
    #[error(
        "CRIU opens the image as user {uid}, who is root in the container's user namespace and may \
         not open {path}; let all users search the image's directory (chmod o+x) and read its *.img \
         (chmod o+r), and keep others out by a directory above it"
    )]
    UserNamespace {
        /// The image directory, or a file in it.
        path: PathBuf,
        /// The user of the host.
        uid: u32,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// CRIU cannot dump memory in advance while GPU memory is mapped.
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
    /// The settings do not allow restores of this image.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The image directory cannot be used.
    #[error(transparent)]
    ImageDirectory(#[from] ImageDirectoryError),
    /// CRIU would write elsewhere than into its work directory.
    #[error(transparent)]
    WorkDirectory(#[from] WorkDirectoryError),
    /// A disk has no room for the image, or its bulk memory.
    #[error(transparent)]
    NoDiskSpace(#[from] NoDiskSpace),
    /// A file of the image is not as it was.
    #[error(transparent)]
    ImageFile(#[from] FileError),
    /// Bulk memory of the image cannot be restored.
    #[error(transparent)]
    Memory(#[from] BulkMemoryError),
    /// A new container cannot begin with the image that it names.
    #[error(transparent)]
    FirstImage(#[from] NoFirstImage),
    /// This machine or the new container cannot take the GPU state.
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
