//! Commands that programs in containers are told by of a checkpoint.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest time that a hook may be given, in seconds.
pub const MOST_SECONDS: u32 = 600;

/// `[hooks]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Run in a container before its CUDA processes are locked: program and arguments, none if
    /// empty.
    pub before_checkpoint: Vec<String>,
    /// Run in it once all of its processes have their GPU again.
    pub after_restore: Vec<String>,
    /// Seconds that each may take.
    pub timeout_s: u32,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            before_checkpoint: Vec::new(),
            after_restore: Vec::new(),
            timeout_s: 30,
        }
    }
}

impl Hooks {
    /// How long each may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.into())
    }

    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let commands = [
            ("hooks.before_checkpoint", &self.before_checkpoint),
            ("hooks.after_restore", &self.after_restore),
        ];
        for (key, command) in commands {
            if command.first().is_some_and(String::is_empty) {
                return Err((key, "must begin with the name of a program"));
            }
            if command.iter().any(|argument| argument.contains('\0')) {
                return Err((key, "must have no zero bytes"));
            }
        }
        if !(1..=MOST_SECONDS).contains(&self.timeout_s) {
            return Err(("hooks.timeout_s", "must be between 1 and 600"));
        }
        Ok(())
    }
}
