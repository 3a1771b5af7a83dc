//! Errors of the OCI runtime's program, `stasis-runtime`.

use std::io;
use std::path::{Path, PathBuf};

use stasis_config::SettingsError;
use stasis_config::interface::SERVED;
use stasis_engine::container::create::CreateError;
use stasis_engine::delete::DeleteError;
use stasis_engine::error::Error;
use stasis_engine::error::io_kind::of_io;
use stasis_engine::error::io_kind::of_settings;
use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_lifecycle::at_create::first_image::FirstImageError;
use stasis_lifecycle::at_stop::Unusable;

/// Why a call of the runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No signal handler can be installed, so a signal would end an operation in the middle.
    #[error("cannot prepare for signals")]
    Signals(#[source] io::Error),
    /// The shim was started before an upgrade that no longer serves it.
    #[error(
        "nothing was done: the shim of this container is too old for this stasis-runtime (it speaks \
         interface {version}, {} to {} are served); the container runs on, and can be stopped and \
         deleted; to checkpoint it, install the version again that had started it",
        SERVED.start(),
        SERVED.end()
    )]
    ShimTooOld {
        /// The shim's version of the interface.
        version: u32,
    },
    /// The shim is of a later version than this program.
    #[error(
        "nothing was done: the shim of this container is too new for this stasis-runtime (it speaks \
         interface {version:?}, {} to {} are served); the container runs on; install the \
         stasis-runtime of the shim's version beside it, nothing has to be restarted",
        SERVED.start(),
        SERVED.end()
    )]
    ShimTooNew {
        /// The version that the shim named.
        version: String,
    },
    /// A signal came before the low-level runtime could replace this process.
    #[error("not passed on to the low-level runtime")]
    StandDown(#[source] io::Error),
    /// The low-level runtime cannot be executed.
    #[error("cannot run {path}")]
    HandOver {
        /// The low-level runtime.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A checkpoint, restore or resume was refused or failed.
    #[error(transparent)]
    Operation(#[from] Error),
    /// The file of the containers that are checkpointed, or restored, together cannot be used.
    #[error("cannot do it together with others: cannot read {path}")]
    Group {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A container was not created.
    #[error("cannot create")]
    Create(#[from] CreateError),
    /// The annotation that names the image of a new container names none.
    #[error("cannot create")]
    FirstImage(#[from] FirstImageError),
    /// Its annotations ask for a checkpoint at its stop that cannot be made.
    #[error("cannot create")]
    AtStop(#[from] Unusable),
    /// The state of a container cannot be asked for, or be printed.
    #[error("cannot tell the container's state")]
    State(#[source] io::Error),
    /// A container could not be deleted.
    #[error("cannot delete")]
    Delete(#[from] DeleteError),
}

impl RuntimeError {
    /// Returns the kind and the state, for scripts.
    pub fn diagnosis(&self) -> Diagnosis {
        let (kind, state) = match self {
            Self::Operation(error) => return error.diagnosis(),
            Self::Settings(error) => (of_settings(error), State::Unharmed),
            Self::Signals(error) => (of_io(error, Kind::Io), State::Unharmed),
            Self::Group { source, .. } => (of_io(source, Kind::ImageDirectory), State::Unharmed),
            Self::ShimTooOld { .. } | Self::ShimTooNew { .. } => {
                (Kind::InterfaceVersion, State::Unharmed)
            }
            Self::StandDown(_) => (Kind::Cancelled, State::Unharmed),
            Self::HandOver { .. } => (Kind::LowLevelRuntime, State::Unharmed),
            Self::Create(_) | Self::FirstImage(_) | Self::AtStop(_) => {
                (Kind::Bundle, State::Unharmed)
            }
            Self::State(error) => (of_io(error, Kind::LowLevelRuntime), State::Unharmed),
            // The container may have ended, with only its record left.
            Self::Delete(error) => (error.kind(), State::Unknown),
        };
        Diagnosis::new(kind, state)
    }

    /// Returns the path of CRIU's log of a failed operation.
    pub fn criu_log(&self) -> Option<&Path> {
        match self {
            Self::Operation(error) => error.criu_log(),
            _ => None,
        }
    }
}
