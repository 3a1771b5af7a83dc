//! Errors as containerd's callers tell them apart: by ttrpc code, which the Go shim set the example for.

use std::io;
use std::path::PathBuf;

use containerd_shim::protos::ttrpc::{self, Code};

use crate::cgroup::CgroupError;
use crate::oci_runtime::RuntimeError;
use crate::state::IllegalTransition;

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No task of this id, or no process of it.
    #[error("{0} is not there")]
    NotFound(String),
    /// The process that a signal is for has ended.
    #[error("process of {0} already finished")]
    Finished(String),
    /// The id is taken.
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// The request says something that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// Not as things are now.
    #[error("{0}")]
    NotNow(String),
    /// A verb that the task's state does not allow.
    #[error(transparent)]
    Transition(#[from] IllegalTransition),
    /// The runtime refused or failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The kernel refused something.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The container's cgroup cannot be read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A root file system that cannot be mounted.
    #[error("cannot mount the root file system at {target}: {reason}")]
    Mount {
        /// Where.
        target: PathBuf,
        /// What the kernel said.
        reason: String,
    },
}

/// The result of most of the shim's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`: what was being done when the kernel refused.
    pub(crate) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Io {
            what,
            source: source.into(),
        }
    }

    fn code(&self) -> Code {
        match self {
            Error::NotFound(_) | Error::Finished(_) => Code::NOT_FOUND,
            Error::AlreadyExists(_) => Code::ALREADY_EXISTS,
            Error::Invalid(_) => Code::INVALID_ARGUMENT,
            Error::NotNow(_) => Code::FAILED_PRECONDITION,
            // The Go shim gives these no code of their own.
            Error::Transition(_)
            | Error::Runtime(_)
            | Error::Io { .. }
            | Error::Cgroup(_)
            | Error::Mount { .. } => Code::UNKNOWN,
        }
    }
}

impl From<Error> for ttrpc::Error {
    fn from(error: Error) -> Self {
        ttrpc::Error::RpcStatus(ttrpc::get_status(error.code(), error))
    }
}
