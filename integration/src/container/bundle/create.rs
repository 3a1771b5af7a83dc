//! Containers that are created first and started then, as engines do it.

use std::process::Child;

use anyhow::Result;

use super::Bundle;

impl Bundle<'_> {
    /// Has the container begin with an image, by its annotation.
    pub fn begin_with(&self, image: &str) -> Result<()> {
        self.annotate("io.stasis.restore", image)
    }

    /// Gives the container an annotation.
    pub fn annotate(&self, name: &str, value: &str) -> Result<()> {
        self.change(|spec| spec["annotations"][name] = value.into())
    }

    /// Creates the container.
    pub fn create(&self) -> Result<()> {
        self.quiet(&["create", "--bundle", &self.directory(), &self.id])
    }

    /// Starts it.
    pub fn start(&self) -> Result<()> {
        self.quiet(&["start", &self.id])
    }

    /// Begins its creation; [`Bundle::message`] and [`Bundle::warnings`] are valid once it is over.
    pub fn begin_create(&self) -> Result<Child> {
        self.begin_quietly(&["create", "--bundle", &self.directory(), &self.id])
    }

    /// Begins its start.
    pub fn begin_start(&self) -> Result<Child> {
        self.begin_quietly(&["start", &self.id])
    }

    /// Sends it a signal, as its caller does.
    pub fn kill(&self, signal: &str) -> Result<()> {
        self.quiet(&["kill", &self.id, signal])
    }

    /// Returns the warnings of the runtime in the last operation.
    pub fn warnings(&self) -> Result<String> {
        let log = std::fs::read_to_string(self.stasis.path(self.log()))?;
        let warnings = log.lines().filter(|line| line.contains("\"warning\""));
        Ok(warnings.collect::<Vec<_>>().join("\n"))
    }
}
