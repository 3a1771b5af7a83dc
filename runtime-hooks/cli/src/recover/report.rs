//! The report of a container on which an operation was killed.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use stasis_engine::error::kind::{Kind, State};
use stasis_engine::error::without_heading;

use crate::answer::name;
use crate::answer::names::by_name;

/// A container on which an operation has left something to undo.
#[derive(Debug, Serialize)]
pub(super) struct ContainerRecovery {
    /// The container's name, or its id if it has none.
    #[serde(skip)]
    pub(super) called: String,
    /// The container's id.
    pub(super) container: String,
    /// The root of its low-level runtime.
    pub(super) root: PathBuf,
    /// The operation that has begun: "checkpoint", "restore", ...
    pub(super) operation: &'static str,
    /// The outcome.
    pub(super) result: Outcome,
    /// The kind of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Kind>,
    /// The container's state now, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<State>,
    /// Why the operation is not undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// The outcome for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// The container is as it was before the operation, or has ended.
    Undone,
    /// The container cannot be brought back, and has to be killed.
    Lost,
    /// It cannot be undone yet; a keeper tries again.
    Waiting,
    /// The operation, or its keeper, is at work.
    UnderWay,
    /// The record cannot be read: it is of another version of stasis, or damaged.
    Unreadable,
}

impl fmt::Display for ContainerRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, root) = (name(&self.called), name(&self.root.display()));
        if let (Outcome::UnderWay, Some(error)) = (self.result, &self.error) {
            return write!(f, "{id} ({root}): {}; nothing to recover", name(error));
        }
        write!(f, "{id} ({root}): a {} was killed; ", self.operation)?;
        match self.result {
            Outcome::Undone => f.write_str("undone")?,
            Outcome::Lost => f.write_str("the container is lost, kill it")?,
            Outcome::Waiting => f.write_str("not undone yet, stasis tries again")?,
            Outcome::UnderWay => f.write_str("an operation is running")?,
            Outcome::Unreadable => f.write_str("its record cannot be read")?,
        }
        let Some(error) = &self.error else {
            return Ok(());
        };
        let kind = self.kind.map(Kind::name).unwrap_or_default();
        let cause = without_heading(error, "recover", &self.container, kind);
        write!(
            f,
            ": {}",
            name(&by_name(cause, &self.container, &self.called))
        )?;
        match kind {
            "" => Ok(()),
            kind => write!(f, " [{kind}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use stasis_engine::error::chain;
    use stasis_engine::operation::OperationError;

    use super::*;

    #[test]
    fn a_running_operation_leaves_nothing_to_recover() {
        let error = OperationError::UnderWay {
            verb: "checkpoint".to_owned(),
            pid: 4210,
        };
        let found = ContainerRecovery {
            called: "c1".to_owned(),
            container: "c1".to_owned(),
            root: "/run/runc".into(),
            operation: "checkpoint",
            result: Outcome::UnderWay,
            kind: Some(error.kind()),
            state: None,
            error: Some(chain(&error)),
        };
        let text = found.to_string();
        let begins = "c1 (/run/runc): a checkpoint is running on this container (process 4210)";
        assert!(
            text.starts_with(begins) && text.ends_with("; nothing to recover"),
            "{text}"
        );
    }
}
