//! The engine's log about the operations in a test host.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::host::installed::{OPERATIONS_LOG, StasisHost};

impl StasisHost {
    /// Returns the last line about an operation ("checkpoint", "restore") in the engine's log.
    pub fn operation(&self, name: &str) -> Result<serde_json::Value> {
        let log = fs::read_to_string(self.path(OPERATIONS_LOG))?;
        for line in log.lines().rev() {
            let line: serde_json::Value = serde_json::from_str(line)?;
            if line["operation"] == name {
                return Ok(line);
            }
        }
        bail!("no {name} is logged")
    }

    /// Returns what `engine` (`podman` or `docker`) and stasis show after a failure.
    pub fn account(&self, engine: &str) -> String {
        let script = format!(
            "{engine} ps -a; {engine} logs $({engine} ps -aq | head -n 1); tail -n 3 {OPERATIONS_LOG}"
        );
        let output = self.host.command("bash").args(["-c", &script]).output();
        output.map_or_else(
            |error| error.to_string(),
            |output| {
                let (stdout, errors) = (&output.stdout, &output.stderr);
                format!(
                    "{}{}",
                    String::from_utf8_lossy(stdout),
                    String::from_utf8_lossy(errors)
                )
            },
        )
    }

    /// Returns the last line of the engine's log of operations.
    pub fn last_operation(&self) -> Result<serde_json::Value> {
        let log = fs::read_to_string(self.path(OPERATIONS_LOG))?;
        let line = log.lines().last().context("no operation is logged")?;
        Ok(serde_json::from_str(line)?)
    }
}
