//! The report as text.

use std::fmt;

use stasis_config::BlockerKind;

use super::{Blocker, CheckReport};
use crate::answer::name;

impl Blocker {
    /// Whether a checkpoint that leaves the container running would begin with it.
    fn is_of_the_end(&self) -> bool {
        self.allowed || self.finding.kind == BlockerKind::ExecSession
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (container, root) = (name(&self.called), name(&self.root.display()));
        writeln!(f, "container {container} ({root})")?;
        for process in &self.processes {
            let state = process.cuda.map(|state| state.to_string());
            let state = state.as_deref().unwrap_or("no CUDA");
            write!(f, "  {} {}: {state}", process.pid, name(&process.name))?;
            for gpu in &process.gpus {
                write!(f, ", {}", gpu.uuid)?;
                if let Some(bytes) = gpu.memory_bytes {
                    write!(f, " {} MiB", bytes >> 20)?;
                }
            }
            if process.exec {
                f.write_str(", started by exec")?;
            }
            writeln!(f)?;
        }
        self.write_obstacles(f)?;
        if let Some(kind) = self.kind {
            let is_of_the_end =
                self.refusal.is_none() && self.blockers.iter().all(Blocker::is_of_the_end);
            let which = if is_of_the_end {
                " that ends the container"
            } else {
                ""
            };
            return write!(f, "a checkpoint{which} would be refused [{kind}]");
        }
        f.write_str(
            if self.processes.iter().all(|process| process.cuda.is_none()) {
                "no process uses CUDA: the low-level runtime would make a plain checkpoint"
            } else {
                "a checkpoint would begin"
            },
        )
    }
}

impl CheckReport {
    /// Writes the blockers, hooks, notes and refusal of a checkpoint.
    pub(crate) fn write_obstacles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for blocker in &self.blockers {
            writeln!(f, "{blocker}")?;
        }
        for hook in self.hooks.all() {
            writeln!(f, "{hook}")?;
        }
        for note in &self.notes {
            writeln!(f, "{}", name(note))?;
        }
        if let Some(refusal) = &self.refusal {
            writeln!(f, "{}", name(refusal))?;
        }
        Ok(())
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: process {}", self.finding.kind, name(&self.finding))?;
        writeln!(f, "  {}", self.consequence)?;
        write!(f, "  way out: {}", self.way_out)?;
        if self.allowed {
            let setting = self.finding.kind.setting().unwrap_or_default();
            write!(f, "\n  allowed by the settings ({setting})")?;
        }
        Ok(())
    }
}
