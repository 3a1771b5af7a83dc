//! The state of a task, and which verbs each state allows.

use std::path::PathBuf;

use containerd_shim::api::Status;

use crate::child::reaper::Exit;
use crate::error::{Error, Result};
use crate::task::operation::Operation;

/// The state of a task.
#[derive(Debug)]
pub(crate) enum LifecycleState {
    /// The low-level runtime has created the container; the user's program has not started.
    Created,
    /// The low-level runtime starts the user's program.
    Starting,
    /// Created from a checkpoint: there is no process before Start restores it.
    Prepared {
        /// The image directory.
        image: PathBuf,
    },
    /// Start restores it.
    Restoring {
        /// The restore.
        operation: Operation,
        /// The image directory; if the restore fails, Start may be tried again.
        image: PathBuf,
    },
    /// It runs.
    Running,
    /// Its cgroup is frozen.
    Paused,
    /// A checkpoint is under way.
    Checkpointing {
        /// The checkpoint.
        operation: Operation,
        /// The state before, which the task has again if the checkpoint does not end it.
        before: Before,
    },
    /// Its init process has ended, and the event is published.
    Stopped(Exit),
}

/// The state of a task before a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It runs.
    Running,
    /// Its cgroup is frozen.
    Paused,
}

/// The work of Start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartFrom {
    /// Start the container that the low-level runtime has created.
    Created,
    /// Restore the checkpoint in this directory.
    Image(PathBuf),
}

impl LifecycleState {
    /// The state as containerd shows it. During an operation it is what the caller expects: a task
    /// that was paused for its checkpoint is paused, although `stasis-runtime` thaws it in between.
    pub(crate) fn status(&self) -> Status {
        match self {
            LifecycleState::Created
            | LifecycleState::Starting
            | LifecycleState::Prepared { .. }
            | LifecycleState::Restoring { .. } => Status::CREATED,
            LifecycleState::Running => Status::RUNNING,
            LifecycleState::Paused => Status::PAUSED,
            LifecycleState::Checkpointing { before, .. } => match before {
                Before::Running => Status::RUNNING,
                Before::Paused => Status::PAUSED,
            },
            LifecycleState::Stopped(_) => Status::STOPPED,
        }
    }

    /// How the task ended, if it has.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self {
            LifecycleState::Stopped(exit) => Some(*exit),
            _ => None,
        }
    }

    /// The operation that is under way.
    pub(crate) fn operation(&mut self) -> Option<&mut Operation> {
        match self {
            LifecycleState::Restoring { operation, .. }
            | LifecycleState::Checkpointing { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Whether Start is allowed, and what it does.
    pub(crate) fn may_start(&self) -> Result<StartFrom> {
        match self {
            LifecycleState::Created => Ok(StartFrom::Created),
            LifecycleState::Prepared { image } => Ok(StartFrom::Image(image.clone())),
            _ => Err(self.refuse("start")),
        }
    }

    /// Whether Exec may add a process, which is started later.
    pub(crate) fn may_add_exec(&self) -> Result<()> {
        match self {
            LifecycleState::Checkpointing { .. } => Ok(()),
            _ => self.may_exec(),
        }
    }

    /// Whether a process that Exec added may be started.
    pub(crate) fn may_exec(&self) -> Result<()> {
        self.may(
            "start a process in",
            matches!(
                self,
                LifecycleState::Created | LifecycleState::Starting | LifecycleState::Running
            ),
        )
    }

    /// Whether Pause is allowed.
    pub(crate) fn may_pause(&self) -> Result<()> {
        self.may("pause", matches!(self, LifecycleState::Running))
    }

    /// Whether Resume is allowed.
    pub(crate) fn may_resume(&self) -> Result<()> {
        self.may("resume", matches!(self, LifecycleState::Paused))
    }

    /// Whether Update is allowed.
    pub(crate) fn may_update(&self) -> Result<()> {
        self.may(
            "update",
            matches!(
                self,
                LifecycleState::Created | LifecycleState::Running | LifecycleState::Paused
            ),
        )
    }

    /// Whether Checkpoint is allowed, and the state before it.
    pub(crate) fn may_checkpoint(&self) -> Result<Before> {
        match self {
            LifecycleState::Running => Ok(Before::Running),
            LifecycleState::Paused => Ok(Before::Paused),
            _ => Err(self.refuse("checkpoint")),
        }
    }

    /// Whether Delete is allowed: if the task has not started or has ended.
    pub(crate) fn may_delete(&self) -> Result<()> {
        self.may(
            "delete",
            matches!(
                self,
                LifecycleState::Created
                    | LifecycleState::Prepared { .. }
                    | LifecycleState::Stopped(_)
            ),
        )
    }

    /// Enters the state Checkpointing.
    pub(crate) fn begin_checkpoint(&mut self, operation: Operation) -> Result<()> {
        let before = self.may_checkpoint()?;
        *self = LifecycleState::Checkpointing { operation, before };
        Ok(())
    }

    /// Leaves the state Checkpointing. Whether the checkpoint ended the processes shows when their
    /// exits come.
    pub(crate) fn end_checkpoint(&mut self) {
        if let LifecycleState::Checkpointing { before, .. } = self {
            *self = match before {
                Before::Running => LifecycleState::Running,
                Before::Paused => LifecycleState::Paused,
            };
        }
    }

    /// Enters the state Restoring.
    pub(crate) fn begin_restore(&mut self, operation: Operation) -> Result<()> {
        match self {
            LifecycleState::Prepared { image } => {
                let image = std::mem::take(image);
                *self = LifecycleState::Restoring { operation, image };
                Ok(())
            }
            _ => Err(self.refuse("start")),
        }
    }

    /// Leaves the state Restoring: the task runs, or can be restored again.
    pub(crate) fn end_restore(&mut self, succeeded: Result<(), ()>) -> Option<Operation> {
        match std::mem::replace(self, LifecycleState::Running) {
            LifecycleState::Restoring { operation, image } => {
                if succeeded.is_err() {
                    *self = LifecycleState::Prepared { image };
                }
                Some(operation)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    fn may(&self, verb: &str, is_allowed: bool) -> Result<()> {
        match is_allowed {
            true => Ok(()),
            false => Err(self.refuse(verb)),
        }
    }

    fn refuse(&self, verb: &str) -> Error {
        let state = match self {
            LifecycleState::Created => "created and not started",
            LifecycleState::Starting => "being started",
            LifecycleState::Prepared { .. } => "made from a checkpoint and not started",
            LifecycleState::Restoring { .. } => "being restored",
            LifecycleState::Running => "running",
            LifecycleState::Paused => "paused",
            LifecycleState::Checkpointing { .. } => "being checkpointed",
            LifecycleState::Stopped(_) => "stopped",
        };
        Error::Other(format!("cannot {verb} a task that is {state}"))
    }
}

#[cfg(test)]
mod tests;
