//! The machine that an image was made on, as far as its restore wants one like it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// More names than a CPU has.
const MAX_NAMES: usize = 1024;

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeOn {
    /// Its kernel: "6.18.0-amd64".
    pub kernel: String,
    /// The version of the CRIU that dumped the processes, if it is known: "4.2".
    pub criu: Option<String>,
    /// The instruction sets of its CPU, as the kernel names them. Programs look once, at their
    /// start, and use them from then on.
    pub cpu: BTreeSet<String>,
}

impl MadeOn {
    /// Returns the instruction sets that a machine with these flags lacks.
    pub(crate) fn lacking(&self, flags: &BTreeSet<String>) -> Vec<&str> {
        let lacks = |name: &&String| !flags.contains(*name);
        self.cpu.iter().filter(lacks).map(String::as_str).collect()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.cpu.len() > MAX_NAMES {
            return Err("it lists more instruction sets than a CPU has".to_owned());
        }
        Ok(())
    }
}
