//! Why a request or a command fails, and the ttrpc status code of that. containerd and its clients
//! act on the code, so each error has the code that containerd's own shim gives it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use containerd_shim::protos::protobuf;
use containerd_shim::protos::ttrpc::{self, Code};

/// Why a request or a command fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no such task, no such process of it, or no cgroup any more.
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
    /// The runtime failed. containerd's own shim uses the same words, and callers show them to
    /// users.
    #[error("OCI runtime {verb} failed: {message}")]
    Runtime {
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
        /// The reason why the shim stopped waiting.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The purpose of the call, as in "read the pid file".
        what: String,
        /// The call's error.
        source: io::Error,
    },
    /// A message cannot be encoded.
    #[error("cannot encode a message: {0}")]
    Encode(#[from] protobuf::Error),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// The result of a request or a command, or of a step of one.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// For `map_err`: an error of the step `what`.
    pub(crate) fn cannot<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
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
            Error::FailedPrecondition(_) => Code::FAILED_PRECONDITION,
            // The caller may change the container or wait, and call again. Not UNAVAILABLE, which
            // containerd takes for a shim that has died (plugins/services/tasks/local.go).
            Error::Runtime { message, .. } if message.is_refusal_for_now() => {
                Code::FAILED_PRECONDITION
            }
            // containerd's own shim gives these no code. Do not use another: containerd takes
            // NOT_FOUND of Kill or Delete for success, and shows the text of UNKNOWN as it is.
            Error::Runtime { .. }
            | Error::Killed { .. }
            | Error::Io { .. }
            | Error::Encode(_)
            | Error::Other(_) => Code::UNKNOWN,
        }
    }
}

impl From<Error> for ttrpc::Error {
    fn from(error: Error) -> Self {
        ttrpc::Error::RpcStatus(ttrpc::get_status(error.code(), error))
    }
}

/// The kinds of errors (docs/troubleshooting.md) that depend on the container's present state.
const REFUSED_FOR_NOW: [&str; 5] = [
    "blocked",
    "busy",
    "frozen-above",
    "pre-dump",
    "process-stopped",
];

/// The error message of a runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RuntimeMessage {
    /// The text.
    pub(crate) message: String,
    /// The copy of CRIU's log, if the runtime kept one.
    pub(crate) criu_log: Option<PathBuf>,
    /// The error's kind (docs/troubleshooting.md); only `stasis-runtime` writes one.
    pub(crate) kind: Option<String>,
    /// The container's state after the error; only `stasis-runtime` writes one.
    pub(crate) state: Option<String>,
}

impl RuntimeMessage {
    /// A message of the shim's own, for a runtime that left none.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// Whether the runtime refused because of the container's present state and changed nothing:
    /// the same call may succeed later.
    pub(crate) fn is_refusal_for_now(&self) -> bool {
        let kind = self.kind.as_deref().unwrap_or_default();
        self.state.as_deref() == Some("unharmed") && REFUSED_FOR_NOW.contains(&kind)
    }

    /// Adds the path of CRIU's log to the message.
    pub(crate) fn name_criu_log(&mut self, path: &Path) {
        self.message = format!("{}; CRIU's log: {}", self.message, path.display());
        self.criu_log = Some(path.to_owned());
    }
}

impl fmt::Display for RuntimeMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_failed_has_no_code_of_its_own() {
        let failed = Error::cannot("mount it")(io::Error::other("no such device"));
        assert_eq!(failed.to_string(), "cannot mount it: no such device");
        assert_eq!(failed.code(), Code::UNKNOWN);
        assert_eq!(
            Error::Invalid("no".to_owned()).code(),
            Code::INVALID_ARGUMENT
        );
    }
}
