//! The errors of the operations: the step that failed, its cause, and the container's state now.

pub mod admission;
pub mod after_failure;
pub mod bulk_memory;
pub mod classify;
mod failure;
pub mod hold;
pub mod io_kind;
pub mod kind;
pub mod low_level;
pub mod operations_log;
pub(crate) mod pending_recovery;
pub mod reason;
mod refusal;

use std::fmt;
use std::path::Path;

pub use stasis_linux::error_chain as chain;

use crate::error::after_failure::AfterFailure;
pub use crate::error::failure::Failure;
pub use crate::error::refusal::Refusal;
use crate::operation::Operation;
use crate::operation::verb::Verb;

const REFUSED: &str = "refused";
const FAILED: &str = "failed";

/// The beginning of a message.
fn heading(verb: impl fmt::Display, id: &str, outcome: &str, kind: impl fmt::Display) -> String {
    format!("{verb} of container {id} {outcome} [{kind}]: ")
}

/// Returns a message without its beginning, for a reader who sees operation, container and kind
/// beside it.
#[must_use]
pub fn without_heading<'m>(message: &'m str, verb: &str, id: &str, kind: &str) -> &'m str {
    let headings = [REFUSED, FAILED].map(|outcome| heading(verb, id, outcome, kind));
    let rest = headings
        .iter()
        .find_map(|heading| message.strip_prefix(heading));
    rest.unwrap_or(message)
}

/// Why an operation was refused or failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error(
        "{}{}; nothing was changed",
        heading(verb, id, REFUSED, reason.kind()), chain(&**reason)
    )]
    Refused {
        verb: Verb,
        id: String,
        reason: Box<Refusal>,
    },
    #[error(
        "{}{}; {after_failure}",
        heading(verb, id, FAILED, cause.kind()), chain(&**cause)
    )]
    Failed {
        verb: Verb,
        id: String,
        cause: Box<Failure>,
        after_failure: Box<AfterFailure>,
    },
}

impl Error {
    /// Where CRIU's log of the failed operation was kept.
    pub fn criu_log(&self) -> Option<&Path> {
        let Self::Failed { cause, .. } = self else {
            return None;
        };
        let dump = match &**cause {
            Failure::LowLevel(failure) => failure,
            Failure::CudaStartedDuringDump { dump, .. } => dump,
            Failure::OtherDriver { failure, .. } => failure,
            _ => return None,
        };
        let kept = dump.log.as_ref().filter(|log| log.not_kept.is_none());
        kept.map(|log| log.path.as_path())
    }

    /// Whether the dump failed only because a process started CUDA, and the container is unharmed.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Failed {
                cause,
                after_failure,
                ..
            } => {
                matches!(**cause, Failure::CudaStartedDuringDump { .. })
                    && matches!(
                        **after_failure,
                        AfterFailure::Unharmed(_) | AfterFailure::AsBefore(_)
                    )
            }
            Self::Refused { .. } => false,
        }
    }

    /// An operation that changed nothing.
    pub fn refused(verb: Verb, id: &str, reason: impl Into<Refusal>) -> Self {
        Self::Refused {
            verb,
            id: id.to_owned(),
            reason: Box::new(reason.into()),
        }
    }

    /// Ends an operation with this failure, and leaves its records as `after_failure` requires.
    pub(crate) fn ending(
        operation: &Operation,
        verb: Verb,
        cause: impl Into<Failure>,
        after_failure: AfterFailure,
    ) -> Self {
        operation.leave(after_failure.left());
        Self::failed(verb, operation.id(), cause, after_failure)
    }

    /// The error of an operation whose record is already ended.
    pub fn failed(
        verb: Verb,
        id: &str,
        cause: impl Into<Failure>,
        after_failure: AfterFailure,
    ) -> Self {
        let (cause, after_failure) = (Box::new(cause.into()), Box::new(after_failure));
        Self::Failed {
            verb,
            id: id.to_owned(),
            cause,
            after_failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::ContainerError;

    #[test]
    fn a_message_is_shown_without_what_stands_beside_it() {
        let gone = ContainerError::Stopped { pid: 42 };
        let error = Error::refused(Verb::Checkpoint, "job", gone);
        let (message, kind) = (error.to_string(), error.diagnosis().kind);
        let rest = without_heading(&message, "checkpoint", "job", kind.name());
        assert!(
            message.len() > rest.len() && rest.ends_with("; nothing was changed"),
            "{rest}"
        );
        assert!(!rest.contains("of container job refused"), "{rest}");
        assert_eq!(without_heading(&message, "restore", "job", "busy"), message);
    }
}
