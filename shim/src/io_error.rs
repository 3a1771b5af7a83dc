//! A system call that failed, and what it was for.

use std::io;

/// A system call that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub(crate) struct IoError {
    /// What the call was for, as in "read the pid file".
    what: String,
    source: io::Error,
}

impl IoError {
    /// For `map_err`: an error of whatever `what` needs.
    pub(crate) fn cannot<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self {
            what,
            source: source.into(),
        }
    }
}
