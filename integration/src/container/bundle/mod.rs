//! Containers without an engine: a bundle, and `stasis-runtime` called as engines call it.

mod before_criu;
mod cgroups;
mod create;
mod devices;
mod restore;
mod spec;

pub use spec::lay_out;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::check::wait::wait_until_clear;
use crate::container::failure::Failure;
use crate::container::image_files;
use crate::host::installed::{RUNTIME, StasisHost};

/// The directory of these containers' state, apart from any engine's.
pub const ROOT: &str = "/run/bundles";

/// A container of a bundle.
#[derive(Debug)]
pub struct Bundle<'l> {
    stasis: &'l StasisHost,
    /// The container's id, which is also its tag for faults of the stand-in.
    pub id: String,
    program: String,
}

impl<'l> Bundle<'l> {
    /// Makes the bundle of a container that runs `command` with the GPU on the host's network.
    /// Needs containerd in the test host, for the image's files.
    pub fn make(stasis: &'l StasisHost, id: &str, command: &[&str]) -> Result<Self> {
        let bundle = Self::laid_out(stasis, id);
        let directory = bundle.directory();
        let mut spec = lay_out(stasis, &directory)?;
        spec::edit(&mut spec, id, command)
            .context("the spec that `runc spec` writes has changed")?;
        let path = stasis.path(format!("{directory}/config.json"));
        std::fs::write(path, serde_json::to_vec(&spec)?)?;
        Ok(bundle)
    }

    /// Returns a bundle that already exists in its place ([`Bundle::directory`]).
    #[must_use]
    pub fn laid_out(stasis: &'l StasisHost, id: &str) -> Self {
        Self {
            stasis,
            id: id.to_owned(),
            program: RUNTIME.to_owned(),
        }
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
    pub fn directory(&self) -> String {
        format!("/run/bundle-{}", self.id)
    }

    /// Returns the directory where the engine records an operation on it that is under way.
    pub fn record(&self) -> PathBuf {
        self.stasis.record(ROOT, &self.id)
    }

    /// Returns the image directory of this container with a name.
    pub fn image(&self, name: &str) -> String {
        format!("/images/{}-{name}", self.id)
    }

    /// Returns its path for this process.
    pub fn image_path(&self, name: &str) -> PathBuf {
        self.stasis.path(self.image(name))
    }

    /// Returns the manifest of an image of this container.
    pub fn manifest(&self, name: &str) -> Result<Value> {
        image_files::manifest(&self.image_path(name))
    }

    /// Returns a command of the runtime with its global options and a verb, standard streams at
    /// /dev/null, standard error piped.
    #[must_use]
    pub fn runtime(&self, arguments: &[&str]) -> Command {
        let mut command = self.stasis.command(&self.program);
        command.args(["--root", ROOT]).args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Returns a command for an operation: [`Bundle::failure`] is its report, if it fails.
    pub fn operation(&self, arguments: &[&str]) -> Result<Command> {
        let log = self.log();
        std::fs::write(self.stasis.path(&log), "")?;
        let logged = ["--log", &log, "--log-format", "json"];
        Ok(self.runtime(&[&logged, arguments].concat()))
    }

    /// Starts the container.
    pub fn run(&self) -> Result<()> {
        let directory = self.directory();
        self.quiet(&["run", "--detach", "--bundle", &directory, &self.id])
    }

    /// Starts the container, and waits until the workload at this port gives this answer.
    pub fn comes_up(&self, port: u16, answer: &str) -> Result<()> {
        self.run()?;
        let found = self.stasis.ask_until_up(port)?;
        ensure!(
            found == answer,
            "{} answers {found:?}, not {answer:?}",
            self.id
        );
        Ok(())
    }

    /// Checkpoints the container into an image directory.
    pub fn checkpoint(&self, name: &str, options: &[&str]) -> Result<()> {
        let image = self.image(name);
        let arguments = ["checkpoint", "--image-path", &image, "--work-path", &image];
        let output = self
            .operation(&arguments)?
            .args(options)
            .arg(&self.id)
            .output()
            .context("no runtime")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{stderr}");
        ensure!(stderr.is_empty(), "a checkpoint has to be silent: {stderr}");
        Ok(())
    }

    /// Begins a checkpoint.
    pub fn begin_checkpoint(&self, name: &str, options: &[&str]) -> Result<Child> {
        let image = self.image(name);
        let arguments = ["checkpoint", "--image-path", &image];
        Ok(self
            .operation(&arguments)?
            .args(options)
            .arg(&self.id)
            .spawn()?)
    }

    /// Makes a checkpoint that has to fail; returns its message.
    pub fn checkpoint_fails(&self, name: &str, options: &[&str]) -> Result<String> {
        match self.checkpoint(name, options) {
            Ok(()) => anyhow::bail!("a checkpoint succeeded that had to fail"),
            Err(error) => Ok(error.to_string()),
        }
    }

    /// Removes the container, if it exists. Kills its processes first, and waits for its cgroups:
    /// runc complains of a cgroup that is busy for longer than 0.3 s (`cgroups.RemovePath`).
    ///
    /// # Errors
    /// A process runs on for 30 s, or the runtime fails.
    pub fn delete(&self) -> Result<()> {
        if self.status()? == "running" {
            // The container may end by itself meanwhile.
            let _ = self.runtime(&["kill", &self.id, "KILL"]).output()?;
            wait_until_clear(|| self.left_in_cgroups())?;
        }
        self.quiet(&["delete", "--force", &self.id])
    }

    /// Waits until its first process has ended, as engines do.
    pub fn until_ended(&self) -> Result<()> {
        wait_until_clear(|| {
            let status = self.status()?;
            let is_over = matches!(status.as_str(), "" | "stopped");
            Ok((!is_over).then(|| format!("{} is {status}", self.id)))
        })
    }

    /// Returns "running", "paused", "stopped"; empty if there is no such container.
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

    /// Returns the pid of the container's init process in the host.
    pub fn pid(&self) -> Result<i64> {
        let output = self
            .runtime(&["state", &self.id])
            .stdout(Stdio::piped())
            .output()?;
        let state: Value = serde_json::from_slice(&output.stdout)?;
        state["pid"].as_i64().context("the container has no pid")
    }

    /// Runs the runtime, which has to print nothing and succeed.
    fn quiet(&self, arguments: &[&str]) -> Result<()> {
        let runtime = self.begin_quietly(arguments)?;
        self.end_quietly(arguments[0], runtime)
    }

    /// Starts the runtime. Its standard streams become the container's, and CRIU cannot dump a file
    /// of the host there, so errors come from the log.
    fn begin_quietly(&self, arguments: &[&str]) -> Result<Child> {
        Ok(self.operation(arguments)?.stderr(Stdio::null()).spawn()?)
    }

    fn end_quietly(&self, verb: &str, mut runtime: Child) -> Result<()> {
        let status = runtime.wait()?;
        let message = self.message()?;
        ensure!(
            status.success(),
            "{}",
            message.unwrap_or_else(|| format!("silent {status}"))
        );
        ensure!(
            message.is_none(),
            "{verb} succeeded, with the message {message:?}"
        );
        Ok(())
    }

    fn log(&self) -> String {
        format!("{}/log.json", self.directory())
    }

    /// Returns the failure that the last operation has reported.
    pub fn failure(&self) -> Result<Option<Failure>> {
        Failure::last_in(&std::fs::read_to_string(self.stasis.path(self.log()))?)
    }

    /// Returns the message of that failure.
    pub fn message(&self) -> Result<Option<String>> {
        Ok(self.failure()?.map(|failure| failure.message))
    }
}
