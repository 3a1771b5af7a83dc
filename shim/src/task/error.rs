//! Why a request about a task fails.

use crate::bundle::error::BundleError;
use crate::cgroup::CgroupError;
use crate::io_error::IoError;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::OptionsError;
use crate::stdio::error::StdioError;
use crate::task::state::IllegalTransition;

/// Why a request about a task fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// There is no task of this id, or no such process of it.
    #[error("{0} is not there")]
    NotFound(String),
    /// The process that a signal is for has ended. Docker recognises these words.
    #[error("process of {0} already finished")]
    Finished(String),
    /// The id is taken.
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// The request contradicts itself or names something that cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// A process or the shim is in a state that does not allow the request.
    #[error("{0}")]
    FailedPrecondition(String),
    /// The task is in a state that does not allow the verb.
    #[error(transparent)]
    Transition(#[from] IllegalTransition),
    /// The request's options cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The bundle cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The streams cannot be set up.
    #[error(transparent)]
    Stdio(#[from] StdioError),
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The container's cgroup cannot be read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The result of a verb.
pub(crate) type Result<T> = std::result::Result<T, TaskError>;
