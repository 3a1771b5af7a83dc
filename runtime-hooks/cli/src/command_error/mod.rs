//! Errors of the operator's program, `stasis`.

mod group;

use std::path::PathBuf;

use rustix::process::geteuid;
use stasis_config::SettingsError;
use stasis_engine::error::io_kind::{of_io, of_settings, of_store};
use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_engine::image::directory::ImageDirectoryError;
use stasis_engine::image::manifest::ManifestError;
use stasis_host::capabilities::StillPrivileged;
use stasis_locate::LocateError;
use stasis_memory_store::StoreError;
use stasis_transfer::MoveError;

use crate::check::CheckError;
use crate::documents::DocumentsError;
use crate::setup::SetupError;
pub use group::GroupError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The caller is not root.
    #[error("stasis needs root: use sudo; rootless containers are not supported")]
    NotRoot,
    /// The command must not read data of others with all of root's capabilities.
    #[error(transparent)]
    StillPrivileged(#[from] StillPrivileged),
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// `stasis check` failed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// There is no image to inspect.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// `stasis inspect` cannot read the manifest of an image.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// `stasis inspect` cannot read the index of an image's bulk memory.
    #[error(transparent)]
    Index(#[from] StoreError),
    /// `stasis checkpoint --group` has not begun.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// `stasis push` or `stasis pull` failed.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// `stasis documents` failed.
    #[error(transparent)]
    Documents(#[from] DocumentsError),
    /// `stasis setup` failed.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// `stasis metrics` cannot read its sources or write its file.
    #[error("cannot {what} {place}")]
    Metrics {
        /// "read" or "write".
        what: &'static str,
        /// A path.
        place: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// `stasis gc` was asked for a container that has left nothing.
    #[error("no container {0} has left an image or GPU contents here")]
    NoImages(String),
    /// `stasis recover` was asked for a container that is not known.
    #[error("there is no container {0}, and no operation left anything to undo of it")]
    NothingOf(String),
    /// An abbreviated id is the beginning of several containers' ids.
    #[error("several containers match {name}: {found}; name one by its whole id")]
    ImagesOfSeveral {
        /// The text.
        name: String,
        /// Their ids.
        found: String,
    },
    /// `stasis recover` or `stasis gc` cannot read what is recorded.
    #[error("cannot read the records of operations")]
    Recover(#[source] std::io::Error),
    /// There is not exactly one running container of that id or name.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// `stasis log` cannot read the log of operations, which `stasis ps` reads as well.
    #[error("cannot read the log of operations")]
    Log(#[source] std::io::Error),
    /// The answer cannot be written.
    #[error("cannot write the answer")]
    Answer(#[from] std::io::Error),
}

impl CommandError {
    /// Returns the kind and the state, for scripts. A failed command has changed no container.
    pub fn diagnosis(&self) -> Diagnosis {
        let kind = match self {
            Self::NotRoot => Kind::NotRoot,
            Self::StillPrivileged(_) => Kind::Io,
            Self::Settings(error) => of_settings(error),
            Self::Check(error) => error.kind(),
            Self::Image(error) => error.kind(),
            Self::Manifest(error) => error.kind(),
            Self::Index(error) => of_store(error),
            Self::Move(error) => error.kind(),
            Self::Group(error) => error.kind(),
            Self::Locate(error) => error.kind(),
            Self::NoImages(_) | Self::NothingOf(_) | Self::ImagesOfSeveral { .. } => {
                Kind::NoContainer
            }
            Self::Metrics { source, .. } => of_io(source, Kind::Io),
            Self::Setup(error) => error.kind(),
            Self::Documents(error) => of_io(&error.source, Kind::Io),
            Self::Recover(error) | Self::Log(error) | Self::Answer(error) => of_io(error, Kind::Io),
        };
        Diagnosis::new(kind, State::Unharmed)
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The directory has no image.
    #[error("there is no image in {0}")]
    NoImage(PathBuf),
    /// The name is no path, and no container with an image has it.
    #[error("there is no image directory, no archive, and no container with an image called {0}")]
    Unknown(String),
    /// `stasis verify` reads all of an image, which lies elsewhere.
    #[error("{0} is not on this machine: pull it first, or use `stasis verify --here`")]
    NotHere(String),
    /// The image's directory cannot be opened.
    #[error(transparent)]
    Directory(#[from] ImageDirectoryError),
}

impl ImageError {
    /// Returns the kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoImage(_) | Self::Unknown(_) | Self::NotHere(_) => Kind::ImageDirectory,
            Self::Directory(error) => error.kind(),
        }
    }
}

/// Refuses callers other than root: containers, records of operations and images are root's, and
/// would look to others as if they did not exist.
pub fn refuse_others() -> Result<(), CommandError> {
    match geteuid().is_root() {
        true => Ok(()),
        false => Err(CommandError::NotRoot),
    }
}

impl CheckError {
    /// Returns the kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Locate(error) => error.kind(),
            Self::Operation(error) => error.kind(),
            Self::Look(refusal) => refusal.kind(),
            Self::Paused(_) => Kind::ContainerPaused,
        }
    }
}

impl SetupError {
    /// Returns the kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoProgram(_) => Kind::LowLevelRuntime,
            Self::File { source, .. } => of_io(source, Kind::Io),
            Self::Content { .. } => Kind::Settings,
            Self::InUse(_) => Kind::Busy,
        }
    }
}
