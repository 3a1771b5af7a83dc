//! What a task is at, and what may become of it.

use std::fmt;
use std::path::PathBuf;

use containerd_shim::api::Status;

use crate::operation::Operation;
use crate::reaper::Exit;

/// What a task is at.
#[derive(Debug)]
pub(crate) enum State {
    /// The low-level runtime has made it; the user's program has not begun.
    Created,
    /// Made from a checkpoint: there is no process before Start restores it.
    Prepared {
        /// The image directory.
        image: PathBuf,
    },
    /// Start is bringing it back.
    Restoring {
        /// The running operation.
        operation: Operation,
        /// The image directory, for another try if this one fails.
        image: PathBuf,
    },
    /// It runs.
    Running,
    /// Its cgroup is frozen.
    Paused,
    /// It is being dumped.
    Checkpointing {
        /// The running operation.
        operation: Operation,
        /// What it was at before, and is again if it goes on.
        before: Standing,
    },
    /// Its init process has ended, and that has been told.
    Stopped(Exit),
}

/// What a task that exists and is not being operated on can be at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It runs.
    Running,
    /// Its cgroup is frozen.
    Paused,
}

/// What callers ask of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Start of the init process.
    Start,
    /// Start of another process.
    Exec,
    /// Freeze.
    Pause,
    /// Thaw.
    Resume,
    /// New limits.
    Update,
    /// Dump.
    Checkpoint,
    /// Removal.
    Delete,
}

/// A verb that does not fit what the task is at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {verb} a task that is {state}")]
pub(crate) struct IllegalTransition {
    verb: Verb,
    state: &'static str,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Start => "start",
            Verb::Exec => "start a process in",
            Verb::Pause => "pause",
            Verb::Resume => "resume",
            Verb::Update => "update",
            Verb::Checkpoint => "checkpoint",
            Verb::Delete => "delete",
        })
    }
}

/// How a task has to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartFrom {
    /// The low-level runtime has made it.
    Created,
    /// Its checkpoint, in this directory.
    Image(PathBuf),
}

impl State {
    /// As containerd shows it. While an operation is under way, what the caller believes: a task
    /// that was paused for its checkpoint is paused, although the engine thaws it in between.
    pub(crate) fn status(&self) -> Status {
        match self {
            State::Created | State::Prepared { .. } | State::Restoring { .. } => Status::CREATED,
            State::Running => Status::RUNNING,
            State::Paused => Status::PAUSED,
            State::Checkpointing { before, .. } => match before {
                Standing::Running => Status::RUNNING,
                Standing::Paused => Status::PAUSED,
            },
            State::Stopped(_) => Status::STOPPED,
        }
    }

    /// How it ended.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self {
            State::Stopped(exit) => Some(*exit),
            _ => None,
        }
    }

    /// The operation under way.
    pub(crate) fn operation(&mut self) -> Option<&mut Operation> {
        match self {
            State::Restoring { operation, .. } | State::Checkpointing { operation, .. } => {
                Some(operation)
            }
            _ => None,
        }
    }

    /// Whether Start is allowed, and what it has to do.
    pub(crate) fn may_start(&self) -> Result<StartFrom, IllegalTransition> {
        match self {
            State::Created => Ok(StartFrom::Created),
            State::Prepared { image } => Ok(StartFrom::Image(image.clone())),
            _ => Err(self.refuse(Verb::Start)),
        }
    }

    /// Whether other processes may be added to it, to be started later.
    pub(crate) fn may_add(&self) -> Result<(), IllegalTransition> {
        match self {
            State::Checkpointing { .. } => Ok(()),
            _ => self.may_exec(),
        }
    }

    /// Whether other processes may be started in it.
    pub(crate) fn may_exec(&self) -> Result<(), IllegalTransition> {
        match self {
            State::Created | State::Running => Ok(()),
            _ => Err(self.refuse(Verb::Exec)),
        }
    }

    /// Whether it may be frozen.
    pub(crate) fn may_pause(&self) -> Result<(), IllegalTransition> {
        match self {
            State::Running => Ok(()),
            _ => Err(self.refuse(Verb::Pause)),
        }
    }

    /// Whether it may be thawed.
    pub(crate) fn may_resume(&self) -> Result<(), IllegalTransition> {
        match self {
            State::Paused => Ok(()),
            _ => Err(self.refuse(Verb::Resume)),
        }
    }

    /// Whether its limits may be changed.
    pub(crate) fn may_update(&self) -> Result<(), IllegalTransition> {
        match self {
            State::Created | State::Running | State::Paused => Ok(()),
            _ => Err(self.refuse(Verb::Update)),
        }
    }

    /// Whether it may be checkpointed, and what it is at.
    pub(crate) fn may_checkpoint(&self) -> Result<Standing, IllegalTransition> {
        match self {
            State::Running => Ok(Standing::Running),
            State::Paused => Ok(Standing::Paused),
            _ => Err(self.refuse(Verb::Checkpoint)),
        }
    }

    /// Whether it may be removed: when nothing of it runs, or nothing has begun to.
    pub(crate) fn may_delete(&self) -> Result<(), IllegalTransition> {
        match self {
            State::Created | State::Prepared { .. } | State::Stopped(_) => Ok(()),
            _ => Err(self.refuse(Verb::Delete)),
        }
    }

    /// A checkpoint begins.
    pub(crate) fn begin_checkpoint(
        &mut self,
        operation: Operation,
    ) -> Result<(), IllegalTransition> {
        let before = self.may_checkpoint()?;
        *self = State::Checkpointing { operation, before };
        Ok(())
    }

    /// A checkpoint is over; gives the operation back. What became of the processes shows when
    /// their exits come.
    pub(crate) fn end_checkpoint(&mut self) -> Option<Operation> {
        let before = match self {
            State::Checkpointing { before, .. } => *before,
            _ => return None,
        };
        let after = match before {
            Standing::Running => State::Running,
            Standing::Paused => State::Paused,
        };
        match std::mem::replace(self, after) {
            State::Checkpointing { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// A restore begins.
    pub(crate) fn begin_restore(&mut self, operation: Operation) -> Result<(), IllegalTransition> {
        match self {
            State::Prepared { image } => {
                let image = std::mem::take(image);
                *self = State::Restoring { operation, image };
                Ok(())
            }
            _ => Err(self.refuse(Verb::Start)),
        }
    }

    /// A restore is over: the task runs, or is as it was before.
    pub(crate) fn end_restore(&mut self, succeeded: Result<(), ()>) -> Option<Operation> {
        let State::Restoring { image, .. } = self else {
            return None;
        };
        let after = match succeeded {
            Ok(()) => State::Running,
            Err(()) => State::Prepared {
                image: std::mem::take(image),
            },
        };
        match std::mem::replace(self, after) {
            State::Restoring { operation, .. } => Some(operation),
            _ => None,
        }
    }

    fn refuse(&self, verb: Verb) -> IllegalTransition {
        let state = match self {
            State::Created => "created and not started",
            State::Prepared { .. } => "made from a checkpoint and not started",
            State::Restoring { .. } => "being restored",
            State::Running => "running",
            State::Paused => "paused",
            State::Checkpointing { .. } => "being checkpointed",
            State::Stopped(_) => "stopped",
        };
        IllegalTransition { verb, state }
    }
}

#[cfg(test)]
mod tests;
