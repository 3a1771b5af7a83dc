//! Why a runtime did not do what it was called for.

use std::io;
use std::path::PathBuf;

use stasis_config::SettingsError;

use crate::runtime::log::RuntimeMessage;

/// Why a runtime did not do what it was called for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    /// The settings name no low-level runtime that exists.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The runtime's program cannot be started. Clients look for its name in quotes, as
    /// containerd's own shim writes it.
    #[error("cannot start {program:?}: {source}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system call's error.
        source: io::Error,
    },
    /// The runtime failed. containerd's own shim uses the same words, and callers show them to
    /// users.
    #[error("OCI runtime {verb} failed: {message}")]
    Failed {
        /// The runtime's command.
        verb: &'static str,
        /// The runtime's own error.
        message: RuntimeMessage,
    },
    /// The runtime did not end, and was killed.
    #[error("OCI runtime {verb} failed: {reason}, and the runtime was killed")]
    Killed {
        /// The runtime's command.
        verb: &'static str,
        /// Why nobody waited any longer.
        reason: String,
    },
    /// The runtime was started and cannot be watched.
    #[error("cannot watch OCI runtime {verb}: {source}")]
    Watch {
        /// The runtime's command.
        verb: &'static str,
        /// The system call's error.
        source: io::Error,
    },
}
