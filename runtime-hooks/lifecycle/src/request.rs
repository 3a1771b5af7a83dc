//! A caller's request to create or end a container, as plain data.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which of the two verbs makes a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateVerb {
    /// `create`: it is started later.
    Create,
    /// `run`: it is started at once.
    Run,
}

/// The options of `create` and `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRequest {
    /// The verb.
    pub verb: CreateVerb,
    /// The container.
    pub id: String,
    /// `--bundle`, absolute; the working directory if not given.
    pub bundle: PathBuf,
    /// `--pid-file`, absolute.
    pub pid_file: Option<PathBuf>,
    /// `--console-socket`, absolute.
    pub console_socket: Option<PathBuf>,
    /// `--no-pivot`
    pub root_change: RootChange,
    /// An option that `restore` does not have.
    pub without_restore: Option<&'static str>,
}

/// How a container's root is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootChange {
    /// By pivot_root(2).
    Pivot,
    /// `--no-pivot`, for a root that is the initial RAM disk's.
    NoPivot,
}

/// The arguments of `kill`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KillRequest {
    /// The container.
    pub id: String,
    /// The signal's number.
    pub signal: i32,
}

/// Command lines for the work after the caller of a `kill` has its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCommands {
    /// This program's: a checkpoint, without its image and its container.
    pub checkpoint: Vec<OsString>,
    /// The low-level runtime's: the `kill` itself.
    pub kill: Vec<OsString>,
}
