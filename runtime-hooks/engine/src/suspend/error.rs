//! Why the GPU state of a container was not moved.

use std::io;

use stasis_config::SettingsError;
use stasis_gpu::cuda::OpenError;
use stasis_gpu::cuda::failure::{JobError, ProcessFailure};
use stasis_linux::error_chain;

use super::held::Held;
use crate::container::host_memory::NoHostMemory;
use crate::container::inherited_devices::InheritedDevicesError;
use crate::error::Refusal;
use crate::error::classify::Classified;
use crate::error::io_kind::of_io;
use crate::error::kind::{Kind, State};
use crate::low_level::hook::HookError;
use crate::operation::{Left, OperationError};
use crate::preflight::blocker::Blockers;

/// Why an order was not carried out.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error(transparent)]
    Driver(#[from] OpenError),
    #[error("cannot read process {pid}")]
    Unreadable { pid: i32, source: io::Error },
    #[error("process {pid} ({name}) {held}, and would not answer the driver; nothing was done")]
    Held { pid: i32, name: String, held: Held },
    #[error(transparent)]
    LowLevel(#[from] SettingsError),
    /// Another operation is under way, or no record can be written.
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error("no process of {0} uses CUDA")]
    NoMembers(String),
    #[error("not all processes of {of} are {wanted}: {states}; nothing was done")]
    Mixed {
        of: String,
        wanted: &'static str,
        states: String,
    },
    #[error("{0}; nothing was done")]
    Blocked(#[from] Blockers),
    #[error("{0}; nothing was done")]
    NoHostMemory(#[from] NoHostMemory),
    #[error("{0}; nothing was done")]
    Refused(Box<Refusal>),
    #[error("{0}; all processes are as before, with their GPU")]
    Hook(HookError),
    #[error("{0}; nothing was done")]
    Untouched(ProcessFailure),
    #[error("{fault}; {}", outcome(.lost))]
    Group {
        fault: ProcessFailure,
        lost: Vec<ProcessFailure>,
    },
    /// Forked children keep devices open.
    #[error("it could not be checkpointed later; {}", outcome(.lost))]
    InheritedDevices {
        #[source]
        cause: InheritedDevicesError,
        lost: Vec<ProcessFailure>,
    },
    /// The container's limits lack room.
    #[error("there is no room for its GPU contents; {}", outcome(.lost))]
    NoRoomInside {
        #[source]
        cause: Box<Error>,
        lost: Vec<ProcessFailure>,
    },
    #[error("{cause}; {}", outcome(.lost))]
    Shared {
        cause: Box<Error>,
        lost: Vec<ProcessFailure>,
    },
    #[error(
        "it is not known what GPU memory its processes share, or it cannot be given up: {}",
        error_chain(.0)
    )]
    NotGivenUp(#[source] io::Error),
    #[error("it cannot be recorded that the operator has suspended it; {}", outcome(.lost))]
    NotRecorded {
        #[source]
        cause: OperationError,
        lost: Vec<ProcessFailure>,
    },
    /// Signals or processes cannot be read.
    #[error("cannot prepare for signals, or read the processes of the container")]
    Io(#[from] io::Error),
    #[error("a signal asked for it to end; {}", outcome(.lost))]
    Cancelled { lost: Vec<ProcessFailure> },
}

impl Error {
    /// Refused before anything was changed.
    pub(super) fn refused(reason: impl Into<Refusal>) -> Self {
        Self::Refused(Box::new(reason.into()))
    }

    /// The failure to give these processes their GPUs back: nothing was done if all stay suspended.
    pub(super) fn of_taking_up(JobError { fault, lost }: JobError, processes: usize) -> Self {
        match lost.iter().filter(|fault| fault.is_suspended()).count() == processes {
            true => Self::Untouched(fault),
            false => Self::Group { fault, lost },
        }
    }

    /// The processes that could not be brought back.
    pub(super) fn lost(&self) -> &[ProcessFailure] {
        match self {
            Self::Group { lost, .. }
            | Self::InheritedDevices { lost, .. }
            | Self::NoRoomInside { lost, .. }
            | Self::Shared { lost, .. }
            | Self::NotRecorded { lost, .. }
            | Self::Cancelled { lost } => lost,
            _ => &[],
        }
    }

    /// The kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Driver(error) => error.kind(),
            Self::Unreadable { .. } => Kind::ContainerUnreadable,
            Self::NoMembers(_) => Kind::NoCuda,
            Self::Held { held, .. } => held.kind(),
            Self::Untouched(fault) | Self::Group { fault, .. } => fault.kind(),
            Self::Mixed { .. } => Kind::WrongState,
            Self::Operation(error) | Self::NotRecorded { cause: error, .. } => error.kind(),
            Self::InheritedDevices { .. } => Kind::InheritedDevices,
            Self::NoRoomInside { cause, .. } | Self::Shared { cause, .. } => cause.kind(),
            Self::NotGivenUp(_) => Kind::SharedMemory,
            Self::Blocked(_) => Kind::Blocked,
            Self::NoHostMemory(error) => error.kind(),
            Self::Refused(refusal) => refusal.kind(),
            Self::Cancelled { .. } => Kind::Cancelled,
            Self::Hook(_) => Kind::HookFailed,
            Self::LowLevel(_) => Kind::LowLevelRuntime,
            Self::Io(error) => of_io(error, Kind::Io),
        }
    }

    /// How the container is now, for scripts.
    pub fn state(&self) -> State {
        match Left::of(self.lost()) {
            Left::Nothing => State::Unharmed,
            _ if self.lost().iter().any(ProcessFailure::is_suspended) => State::Unknown,
            // Its keeper goes on trying.
            Left::ToUndo if self.lost().iter().all(ProcessFailure::may_pass) => State::Waiting,
            Left::ToUndo | Left::Lost => State::Lost,
        }
    }
}

fn outcome(lost: &[ProcessFailure]) -> String {
    if lost.is_empty() {
        return "all processes are as before, with their GPU".to_owned();
    }
    let texts: Vec<String> = lost.iter().map(ToString::to_string).collect();
    let later = match lost.iter().any(ProcessFailure::lacks_room) {
        true => "; a process of stasis gives them their GPU back as soon as there is room",
        false => "",
    };
    format!(
        "these could not be brought back: {}{later}",
        texts.join("; ")
    )
}

impl From<JobError> for Error {
    fn from(JobError { fault, lost }: JobError) -> Self {
        Self::Group { fault, lost }
    }
}
