//! The kind of every error of an operation. No match has a catch-all: a new error does not compile
//! without a kind.

mod image;

use stasis_gpu::cuda::failure::{Cause, ProcessFailure};
use stasis_gpu::cuda::stopped::Stop;
use stasis_gpu::cuda::{CudaError, OpenError};

use crate::container::ContainerError;
use crate::container::criu_configuration::CriuConfigurationError;
use crate::container::host_memory::NoHostMemory;
use crate::error::admission::AdmissionError;
use crate::error::io_kind::{of_contents, of_io, of_store};
use crate::error::kind::{Diagnosis, Kind, State};
use crate::error::low_level::LowLevelFailure;
use crate::error::{Error, Failure, Refusal};
use crate::operation::OperationError;

/// An error of a crate below, whose kind is decided here.
pub trait Classified {
    /// The kind of an operation that failed with it.
    fn kind(&self) -> Kind;
}

impl Error {
    /// The kind and the state, for scripts.
    pub fn diagnosis(&self) -> Diagnosis {
        match self {
            Self::Refused { reason, .. } => Diagnosis::new(reason.kind(), State::Unharmed),
            Self::Failed {
                cause,
                after_failure,
                ..
            } => Diagnosis {
                kind: cause.kind(),
                state: after_failure.state(),
                image: after_failure.image(),
            },
        }
    }
}

impl Refusal {
    /// Why the operation did not begin.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Container(error) => error.kind(),
            Self::CriuConfiguration(error) => error.kind(),
            Self::Hook(_) => Kind::HookFailed,
            Self::Operation(error) => error.kind(),
            Self::Driver(error) => error.kind(),
            Self::Criu(_) => Kind::Criu,
            Self::Inventory(_) => Kind::Nvml,
            Self::Freezer(_) => Kind::Freezer,
            Self::Manifest(error) => error.kind(),
            Self::HostMemory(error) => error.kind(),
            Self::Store(error) => of_store(error),
            Self::GpuContents(error) => of_contents(error),
            Self::Process(fault) => fault.kind(),
            Self::Blocked(_) => Kind::Blocked,
            Self::Directory { source, .. } => of_io(source, Kind::ImageDirectory),
            Self::UserNamespace { .. } => Kind::ImageDirectory,
            Self::PreDump { .. } => Kind::PreDump,
            Self::NotAllowed(error) => error.kind(),
            Self::ImageDirectory(error) => error.kind(),
            Self::WorkDirectory(error) => error.kind(),
            Self::NoDiskSpace(_) => Kind::NoSpace,
            Self::ImageFile(error) => error.kind(),
            Self::Memory(error) => error.kind(),
            Self::Hold(error) => error.kind(),
            Self::Reason(reason) => reason.kind(),
            Self::Denied(denial) => denial.kind(),
        }
    }
}

impl Failure {
    /// Why the operation failed.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Job(error) => error.fault.kind(),
            Self::Refused(refusal) => refusal.kind(),
            Self::Process(fault) => fault.kind(),
            Self::OutOfGpuMemory { .. } | Self::NoRoom => Kind::NoGpuMemory,
            Self::Spec(_) => Kind::Bundle,
            Self::DeviceNodes(_) => Kind::DeviceNodes,
            Self::Freezer(_) => Kind::Freezer,
            Self::Hook(_) => Kind::HookFailed,
            Self::InheritedDevices(_) => Kind::InheritedDevices,
            Self::HostMemory(error) => error.kind(),
            Self::Manifest(error) => error.kind(),
            Self::Store(error) => of_store(error),
            Self::ImageDirectory(error) => error.kind(),
            Self::ImageFile(error) => error.kind(),
            Self::Pstree(error) => error.kind(),
            Self::Operation(error) => error.kind(),
            Self::Start { source, .. } => of_io(source, Kind::LowLevelRuntime),
            Self::LowLevel(failure) => failure.kind(),
            Self::CudaStartedDuringDump { .. } => Kind::ProcessStartedCuda,
            Self::OtherDriver { .. } => Kind::OtherDriver,
            Self::ImageId(_) | Self::ContentsInFile(_) => Kind::Io,
            Self::GpuContents(error) => of_contents(error),
            Self::SharedMemory(_) => Kind::SharedMemory,
            Self::Container(error) => error.kind(),
            Self::Hold(error) => error.kind(),
            Self::MissingProcess { .. } => Kind::ProcessMissing,
            Self::NotRunning { .. } => Kind::ImageDamaged,
            Self::Unanswered => Kind::NoAnswer,
            Self::CutOff { .. } => Kind::CutOff,
            Self::Reason(reason) => reason.kind(),
            Self::Cancelled => Kind::Cancelled,
        }
    }
}

impl LowLevelFailure {
    /// Which of the low-level runtime and CRIU failed.
    pub fn kind(&self) -> Kind {
        if self.hung.is_some() {
            Kind::Hung
        } else if self.full.is_some() {
            Kind::NoSpace
        } else if self.log.is_some() {
            Kind::Criu
        } else {
            // CRIU writes its log as soon as it has read its options.
            Kind::LowLevelRuntime
        }
    }
}

impl Classified for ProcessFailure {
    fn kind(&self) -> Kind {
        match &self.cause {
            Cause::Driver(error) | Cause::NotAsked(error) => error.kind(),
            Cause::NoAnswer(_) | Cause::NoThread(_) | Cause::Panic => Kind::NoAnswer,
            Cause::State(_) => Kind::Driver,
            Cause::Deadline(_) => Kind::LockTimeout,
            Cause::Stopped(Stop::Signal { .. } | Stop::Traced { .. }) => Kind::ProcessStopped,
            Cause::Stopped(Stop::FrozenAncestor(_)) => Kind::FrozenAbove,
            Cause::NoDriver => Kind::NoDriver,
            Cause::NoRoom(_) => Kind::NoGpuMemory,
            Cause::Suspended => Kind::GpuMap,
            Cause::NoMappings { .. } => Kind::NoMappings,
            Cause::Gone => Kind::ProcessEnded,
            Cause::ContentsLost => Kind::MemoryNotReturned,
            Cause::Io(_) | Cause::Unrecorded => Kind::ContainerUnreadable,
        }
    }
}

impl Classified for CudaError {
    fn kind(&self) -> Kind {
        match self {
            Self::ContentsAway | Self::ContentsLost => Kind::MemoryNotReturned,
            Self::SharedMemoryAway | Self::SharedMemoryLost => Kind::SharedMemory,
            Self::NoAnswer(_) | Self::NoThread(_) | Self::NotPutBack => Kind::NoAnswer,
            Self::Ended => Kind::ProcessEnded,
            Self::OutOfMemory => Kind::NoGpuMemory,
            Self::NotReady => Kind::LockTimeout,
            Self::NotSupported => Kind::Unsupported,
            Self::InvalidValue
            | Self::NotInitialized
            | Self::InvalidContext
            | Self::OperatingSystem
            | Self::IllegalState
            | Self::NotPermitted
            | Self::Unknown(_) => Kind::Driver,
        }
    }
}

impl Classified for OpenError {
    fn kind(&self) -> Kind {
        match self {
            Self::NotFound | Self::Load { .. } => Kind::NoDriver,
            Self::TooOld { .. } => Kind::DriverTooOld,
        }
    }
}

impl ContainerError {
    /// Why the container cannot be read.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotFound { .. } | Self::Stopped { .. } => Kind::NoContainer,
            Self::Read { .. }
            | Self::Malformed { .. }
            | Self::NotVisible { .. }
            | Self::Processes(_) => Kind::ContainerUnreadable,
        }
    }
}

impl CriuConfigurationError {
    /// Why CRIU is not started for the container.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Annotated { .. } => Kind::CriuConfiguration,
            Self::Container(error) => error.kind(),
            Self::Spec(_) => Kind::Bundle,
        }
    }
}

impl OperationError {
    /// Why the container cannot be operated on.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Busy { .. } | Self::UnderWay { .. } | Self::Orphans => Kind::Busy,
            Self::Unfinished(_) => Kind::CutOff,
            Self::NotStarted => Kind::NotStarted,
            Self::Keeper(error) | Self::Io { source: error, .. } => of_io(error, Kind::Io),
        }
    }
}

impl NoHostMemory {
    /// Whether the host or a limit leaves too little memory.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Host { .. } => Kind::NoHostMemory,
            Self::Limit { .. } | Self::LimitOfNew { .. } => Kind::MemoryLimit,
            Self::Io(error) | Self::Ledger(error) => of_io(error, Kind::Io),
        }
    }
}

impl AdmissionError {
    /// Why GPU state is not restored here.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Spec(_) => Kind::Bundle,
            Self::NoGpu { .. } | Self::GpuVanished { .. } => Kind::NoGpu,
            Self::GpuUnread { .. } | Self::Inventory(_) => Kind::Nvml,
            Self::Ledger(error) => of_io(error, Kind::Io),
            Self::Map { .. } => Kind::GpuMap,
            Self::Mig { .. } => Kind::Mig,
            Self::Mps { .. } => Kind::Mps,
            Self::NoPersistence { .. } => Kind::NoPersistence,
            Self::SmallHost { .. } => Kind::NoHostMemory,
            Self::NoRoom { .. } => Kind::NoGpuMemory,
            Self::OlderDriver { .. } => Kind::OtherDriver,
            Self::OtherCpu { .. } => Kind::OtherCpu,
            Self::NoMigration { .. } => Kind::DriverTooOld,
        }
    }
}
