//! Containers of Docker.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::client::podman::gpu_options;
use crate::host::Daemon;
use crate::host::image::Image;
use crate::host::installed::StasisHost;

impl StasisHost {
    /// Starts Docker with the test image in it.
    pub fn docker(&self) -> Result<Daemon<'_>> {
        let daemon = self.host.docker()?;
        let archive = self.install_image()?;
        self.run(&["docker", "load", "-q", "-i", archive])?;
        Ok(daemon)
    }

    /// Runs a container with the GPU, on the host's network if `options` name none, under stasis.
    /// Its tag for faults of the stand-in is its name.
    pub fn docker_run(&self, name: &str, options: &[&str], command: &[&str]) -> Result<()> {
        self.docker_make(&["run", "-d"], name, options, command)
    }

    /// Creates such a container without starting it.
    pub fn docker_create(&self, name: &str, command: &[&str]) -> Result<()> {
        self.docker_make(&["create"], name, &[], command)
    }

    fn docker_make(
        &self,
        verb: &[&str],
        name: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<()> {
        let gpu = gpu_options(name);
        let mut arguments = [&["docker"], verb, &["--runtime", self.docker_runtime]].concat();
        arguments.extend(["--name", name]);
        if !options.contains(&"--network") {
            arguments.extend(["--network", "host"]);
        }
        arguments.extend(gpu.iter().map(String::as_str));
        arguments.extend_from_slice(options);
        arguments.push(Image::DEFAULT_NAME);
        arguments.extend_from_slice(command);
        self.run(&arguments).map(drop)
    }

    /// Makes a checkpoint; `options` may hold `--leave-running`.
    ///
    /// Docker pauses the container first, for which runc looks a thousand times at a freezer of
    /// version 1, without waiting: too short for processes that get no processor meanwhile. So a
    /// failed pause is tried again.
    pub fn docker_checkpoint(&self, options: &[&str], name: &str, checkpoint: &str) -> Result<()> {
        let create = ["docker", "checkpoint", "create"];
        let arguments = [&create, options, &[name, checkpoint]].concat();
        let mut tries = 1..=5;
        let stdout = loop {
            match self.run_for_text(&arguments) {
                Err(error)
                    if error.to_string().contains("unable to freeze") && tries.next().is_some() =>
                {
                    sleep(Duration::from_secs(1));
                }
                made => break made?,
            }
        };
        ensure!(
            stdout == checkpoint,
            "docker checkpoint create wrote {stdout:?}"
        );
        Ok(())
    }

    /// Starts a container from a checkpoint.
    ///
    /// Stock Docker refuses this until containerd has collected the previous checkpoint's remains
    /// in its content store (docs/internals/testing.md), so it is tried for some seconds.
    pub fn docker_restore(&self, name: &str, checkpoint: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let started = self.run(&["docker", "start", "--checkpoint", checkpoint, name]);
            if started.is_ok() || Instant::now() > deadline {
                return started.map(drop);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// The state of a container in Docker's words ("running", "exited", ...).
    pub fn docker_status(&self, name: &str) -> Result<String> {
        self.run_for_text(&["docker", "inspect", "--format", "{{.State.Status}}", name])
    }

    /// Waits until a container has the status.
    ///
    /// # Errors
    /// It has another after 30 s.
    pub fn docker_wait_for(&self, name: &str, status: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let current = self.docker_status(name)?;
            if current == status {
                return Ok(());
            }
            let late = Instant::now() > deadline;
            ensure!(!late, "{name} is {current}, not {status}, after 30 s");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills and removes a container.
    pub fn docker_remove(&self, name: &str) -> Result<()> {
        self.run(&["docker", "rm", "-f", name]).map(drop)
    }
}
