//! Why a command of containerd fails.

use crate::bundle::error::BundleError;
use crate::cgroup::CgroupError;
use crate::io_error::IoError;
use crate::runtime::error::RuntimeError;
use crate::runtime::options::OptionsError;

/// Why a command of containerd fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// Standard input holds something else than containerd writes.
    #[error("standard input holds no options: {0}")]
    Input(String),
    /// The environment lacks a variable that containerd sets.
    #[error("{0} is not set: this program is started by containerd")]
    Environment(&'static str),
    /// The answer cannot be encoded.
    #[error("cannot encode the answer: {0}")]
    Encode(String),
    /// The shim cannot be put into its cgroup, or given its OOM score.
    #[error("cannot confine the shim: {0}")]
    Confine(String),
    /// The runtime options cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The bundle cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The container's cgroup cannot be found.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, CommandError>;
