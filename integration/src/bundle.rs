//! Containers without an engine: a bundle, and `stasis-runtime` called as engines call it.

mod given;
mod restore;
mod spec;

pub use spec::lay_out;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::lab::{Lab, RUNTIME};

/// Where these containers' state is, apart from any engine's.
const ROOT: &str = "/run/bundles";

/// A container of a bundle.
#[derive(Debug)]
pub struct Bundle<'l> {
    lab: &'l Lab,
    /// The container's id, which is also its tag for faults of the stand-in.
    pub id: String,
    program: String,
}

impl<'l> Bundle<'l> {
    /// Makes the bundle of a container that runs `command` with the GPU on the host's network. Needs
    /// containerd in the lab, for the image's files.
    ///
    /// # Errors
    /// What ctr or the low-level runtime said.
    pub fn make(lab: &'l Lab, id: &str, command: &[&str]) -> Result<Self> {
        let bundle = Self {
            lab,
            id: id.to_owned(),
            program: RUNTIME.to_owned(),
        };
        let directory = bundle.directory();
        let mut spec = lay_out(lab, &directory)?;
        spec::edit(&mut spec, id, command)
            .context("the spec that `runc spec` writes has changed")?;
        let path = lab.host.path(format!("{directory}/config.json"));
        std::fs::write(path, serde_json::to_vec(&spec)?)?;
        Ok(bundle)
    }

    /// Uses another runtime than stasis from now on.
    #[must_use]
    pub fn through(self, program: &str) -> Self {
        Self {
            program: program.to_owned(),
            ..self
        }
    }

    /// The bundle's directory in the host.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("/run/bundle-{}", self.id)
    }

    /// An image directory of this container, by name.
    #[must_use]
    pub fn image(&self, name: &str) -> String {
        format!("/images/{}-{name}", self.id)
    }

    /// The same as this process finds it.
    #[must_use]
    pub fn image_path(&self, name: &str) -> PathBuf {
        self.lab.host.path(self.image(name))
    }

    /// The runtime with its global options and a verb, standard streams at /dev/null, standard error
    /// kept.
    #[must_use]
    pub fn runtime(&self, arguments: &[&str]) -> Command {
        let mut command = self.lab.command(&self.program);
        command.args(["--root", ROOT]).args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Starts the container.
    ///
    /// # Errors
    /// What the runtime said.
    pub fn run(&self) -> Result<()> {
        let directory = self.directory();
        self.quiet(&["run", "--detach", "--bundle", &directory, &self.id])
    }

    /// Checkpoints the container into an image directory.
    ///
    /// # Errors
    /// What the runtime said.
    pub fn checkpoint(&self, name: &str, options: &[&str]) -> Result<()> {
        let image = self.image(name);
        let arguments = ["checkpoint", "--image-path", &image, "--work-path", &image];
        let output = self
            .runtime(&arguments)
            .args(options)
            .arg(&self.id)
            .output()
            .context("no runtime")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        ensure!(said.is_empty(), "a checkpoint has to be silent: {said}");
        Ok(())
    }

    /// Begins a checkpoint.
    ///
    /// # Errors
    /// The runtime cannot be started.
    pub fn begin_checkpoint(&self, name: &str, options: &[&str]) -> Result<Child> {
        let image = self.image(name);
        let arguments = ["checkpoint", "--image-path", &image];
        Ok(self
            .runtime(&arguments)
            .args(options)
            .arg(&self.id)
            .spawn()?)
    }

    /// A checkpoint that has to fail; gives what it said.
    ///
    /// # Errors
    /// It succeeded.
    pub fn checkpoint_fails(&self, name: &str, options: &[&str]) -> Result<String> {
        match self.checkpoint(name, options) {
            Ok(()) => anyhow::bail!("a checkpoint succeeded that had to fail"),
            Err(error) => Ok(error.to_string()),
        }
    }

    /// Removes the container, if it is there.
    ///
    /// # Errors
    /// What the runtime said.
    pub fn delete(&self) -> Result<()> {
        self.quiet(&["delete", "--force", &self.id])
    }

    /// "running", "paused", "stopped"; empty if there is no such container.
    ///
    /// # Errors
    /// The runtime gives no JSON.
    pub fn status(&self) -> Result<String> {
        let output = self
            .runtime(&["state", &self.id])
            .stdout(Stdio::piped())
            .output()?;
        if !output.status.success() {
            return Ok(String::new());
        }
        let state: Value = serde_json::from_slice(&output.stdout)?;
        Ok(state["status"].as_str().unwrap_or_default().to_owned())
    }

    /// The pid of the container's init process in the host.
    ///
    /// # Errors
    /// The container does not run.
    pub fn pid(&self) -> Result<i64> {
        let output = self
            .runtime(&["state", &self.id])
            .stdout(Stdio::piped())
            .output()?;
        let state: Value = serde_json::from_slice(&output.stdout)?;
        state["pid"].as_i64().context("the container has no pid")
    }

    /// Runs the runtime, which has to say nothing and succeed.
    fn quiet(&self, arguments: &[&str]) -> Result<()> {
        let runtime = self.begin_quietly(arguments)?;
        self.end_quietly(arguments[0], runtime)
    }

    /// Starts the runtime. Its standard streams become the container's, and CRIU cannot dump a file of
    /// the host there, so errors come from the log.
    fn begin_quietly(&self, arguments: &[&str]) -> Result<Child> {
        std::fs::write(self.lab.host.path(self.log()), "")?;
        let mut command = self.lab.command(&self.program);
        command
            .args(["--root", ROOT, "--log", &self.log(), "--log-format", "json"])
            .args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(command.spawn()?)
    }

    fn end_quietly(&self, verb: &str, mut runtime: Child) -> Result<()> {
        let status = runtime.wait()?;
        let said = self.said()?;
        ensure!(
            status.success(),
            "{}",
            said.unwrap_or_else(|| format!("silent {status}"))
        );
        ensure!(said.is_none(), "{verb} succeeded and said {said:?}");
        Ok(())
    }

    fn log(&self) -> String {
        format!("{}/log.json", self.directory())
    }

    /// The error that the last run, restore or delete has told.
    ///
    /// # Errors
    /// What it told is no JSON.
    pub fn said(&self) -> Result<Option<String>> {
        last_error(&std::fs::read_to_string(self.lab.host.path(self.log()))?)
    }
}

/// As engines read the log: the message of the last object of level "error". crun writes an object on
/// several lines.
fn last_error(log: &str) -> Result<Option<String>> {
    let mut last = None;
    for object in serde_json::Deserializer::from_str(log).into_iter::<Value>() {
        let object = object?;
        if object["level"] == "error" {
            last = object["msg"].as_str().map(str::to_owned);
        }
    }
    Ok(last)
}
