//! The hooks that a checkpoint would run. A check runs none.

use std::fmt;

use serde::Serialize;
use stasis_engine::container::hooks::{Hook, Hooks};

use super::CheckReport;
use crate::answer::name;

/// The hooks of a container with GPU state.
#[derive(Debug, Default, Serialize)]
pub struct DeclaredHooks {
    /// Before its processes are locked.
    pub before_checkpoint: Option<DeclaredHook>,
    /// When they have their GPU again.
    pub after_restore: Option<DeclaredHook>,
}

/// One hook.
#[derive(Debug, Serialize)]
pub struct DeclaredHook {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take, in seconds.
    pub timeout_seconds: u64,
    /// The hook's name, for people.
    #[serde(skip)]
    name: String,
}

impl DeclaredHooks {
    pub(crate) fn all(&self) -> impl Iterator<Item = &DeclaredHook> {
        self.before_checkpoint.iter().chain(&self.after_restore)
    }
}

impl From<Hooks> for DeclaredHooks {
    fn from(hooks: Hooks) -> Self {
        let declared = |hook: Hook| DeclaredHook {
            name: hook.to_string(),
            timeout_seconds: hook.timeout.as_secs(),
            command: hook.command,
        };
        Self {
            before_checkpoint: hooks.before_checkpoint.map(declared),
            after_restore: hooks.after_restore.map(declared),
        }
    }
}

impl fmt::Display for DeclaredHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hook, seconds) = (name(&self.name), self.timeout_seconds);
        write!(f, "{hook} would run in it, for up to {seconds} s")
    }
}

impl CheckReport {
    pub(super) fn declare(&mut self, hooks: Hooks) {
        if hooks.before_checkpoint.is_some() && !self.checkpointable {
            let note =
                "its before-checkpoint hook may remove these blockers: a checkpoint runs it first";
            self.notes.push(note.to_owned());
        }
        self.hooks = hooks.into();
    }
}
