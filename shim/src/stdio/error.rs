//! Why the streams of a process cannot be set up.

use crate::io_error::IoError;

/// Why the streams of a process cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StdioError {
    /// The request names a stream in a form that the shim does not support.
    #[error("{0}")]
    Uri(String),
    /// A stream that the request names cannot be connected.
    #[error("{0}")]
    Connect(String),
    /// The logger did not report that it is ready.
    #[error("the logger {program} was not ready within {seconds} s and was killed")]
    LoggerNotReady {
        /// The logger's program.
        program: String,
        /// How long the shim waited.
        seconds: u64,
    },
    /// The logger ended, or closed its descriptor, before it had reported that it is ready.
    #[error("the logger {0} ended before it was ready")]
    LoggerEnded(String),
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// The result of this folder's functions.
pub(crate) type Result<T> = std::result::Result<T, StdioError>;
