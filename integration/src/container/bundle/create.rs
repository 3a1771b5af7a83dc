//! Containers that are created first and started then, as engines do it.

use std::process::Child;

use anyhow::Result;

use super::Bundle;

impl Bundle<'_> {
    /// Has the container begin with an image, by its annotation.
    ///
    /// # Errors
    /// As [`Bundle::change`].
    pub fn begin_with(&self, image: &str) -> Result<()> {
        self.annotate("io.stasis.restore", image)
    }

    /// Gives the container an annotation.
    ///
    /// # Errors
    /// As [`Bundle::change`].
    pub fn annotate(&self, name: &str, value: &str) -> Result<()> {
        self.change(|spec| spec["annotations"][name] = value.into())
    }

    /// Creates the container.
    ///
    /// # Errors
    /// The runtime fails.
    pub fn create(&self) -> Result<()> {
        self.quiet(&["create", "--bundle", &self.directory(), &self.id])
    }

    /// Starts it.
    ///
    /// # Errors
    /// The runtime fails.
    pub fn start(&self) -> Result<()> {
        self.quiet(&["start", &self.id])
    }

    /// Begins its creation; [`Bundle::message`] and [`Bundle::warnings`] are valid once it is over.
    ///
    /// # Errors
    /// The runtime cannot be started.
    pub fn begin_create(&self) -> Result<Child> {
        self.begin_quietly(&["create", "--bundle", &self.directory(), &self.id])
    }

    /// Begins its start.
    ///
    /// # Errors
    /// As [`Bundle::begin_create`].
    pub fn begin_start(&self) -> Result<Child> {
        self.begin_quietly(&["start", &self.id])
    }

    /// Sends it a signal, as its caller does.
    ///
    /// # Errors
    /// The runtime fails.
    pub fn kill(&self, signal: &str) -> Result<()> {
        self.quiet(&["kill", &self.id, signal])
    }

    /// Returns the warnings of the runtime in the last operation.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn warnings(&self) -> Result<String> {
        let log = std::fs::read_to_string(self.stasis.host.path(self.log()))?;
        let warnings = log.lines().filter(|line| line.contains("\"warning\""));
        Ok(warnings.collect::<Vec<_>>().join("\n"))
    }
}
