//! Restores of a bundle's container.

use std::process::Child;

use anyhow::{Result, ensure};

use super::Bundle;

impl Bundle<'_> {
    /// Restores the container from an image directory, detached.
    pub fn restore(&self, name: &str) -> Result<()> {
        let restore = self.begin_restore(name)?;
        self.end_quietly("restore", restore)
    }

    /// Begins a restore; [`Bundle::message`] is valid once it is over.
    pub fn begin_restore(&self, name: &str) -> Result<Child> {
        self.begin_restore_from(&self.image(name))
    }

    /// Begins a restore from a directory of the host, which may be another container's image.
    pub fn begin_restore_from(&self, image: &str) -> Result<Child> {
        let bundle = self.directory();
        let work = format!("{bundle}/work");
        let paths = [
            "--image-path",
            image,
            "--work-path",
            &work,
            "--bundle",
            &bundle,
        ];
        let mut arguments = vec!["restore", "--detach"];
        arguments.extend(paths);
        arguments.push(&self.id);
        self.begin_quietly(&arguments)
    }

    /// Makes a restore that has to fail and leave no container; returns its message.
    pub fn restore_fails(&self, name: &str) -> Result<String> {
        let Err(error) = self.restore(name) else {
            anyhow::bail!("a restore succeeded that had to fail");
        };
        ensure!(
            self.status()?.is_empty(),
            "a failed restore left a container: {error}"
        );
        Ok(error.to_string())
    }

    /// Freezes the container. With version 1 of cgroups runc looks a thousand times, a moment
    /// apart, and thaws it then ("unable to freeze"): a loaded machine may need longer.
    pub fn pause(&self) -> Result<()> {
        for _ in 1..20 {
            if self.quiet(&["pause", &self.id]).is_ok() {
                return Ok(());
            }
        }
        self.quiet(&["pause", &self.id])
    }

    /// Resumes a frozen container.
    pub fn resume(&self) -> Result<()> {
        self.quiet(&["resume", &self.id])
    }
}
