//! Containers of podman.

use anyhow::{Result, ensure};

use crate::check::wait::wait_until_clear;
use crate::host::image::Image;
use crate::host::installed::{DEVICES, DRIVER, RUNTIME, StasisHost};

impl StasisHost {
    /// Runs podman; returns its standard output. The runtime is named when a container is first
    /// run, and podman remembers it, in exported archives too.
    pub fn podman(&self, arguments: &[&str]) -> Result<String> {
        self.run_for_text(&[&["podman"], arguments].concat())
    }

    /// Puts the test image into podman's storage.
    pub fn podman_load(&self) -> Result<()> {
        let archive = self.install_image()?;
        self.podman(&["load", "-q", "-i", archive]).map(drop)
    }

    /// Runs a container with the GPU, on the host's network, under stasis. Its tag for faults of
    /// the stand-in is its name.
    pub fn podman_run(&self, name: &str, options: &[&str], command: &[&str]) -> Result<()> {
        let gpu = gpu_options(name);
        let mut arguments = vec!["--runtime", RUNTIME, "run", "-d", "--name", name];
        if !options.iter().any(|option| option.starts_with("--network")) {
            arguments.extend(["--network", "host"]);
        }
        arguments.extend(gpu.iter().map(String::as_str));
        arguments.extend_from_slice(options);
        arguments.push(Image::DEFAULT_NAME);
        arguments.extend_from_slice(command);
        self.podman(&arguments).map(drop)
    }

    /// Runs a `podman container` command that answers with nothing but the name of its container.
    pub fn podman_container(&self, arguments: &[&str], name: &str) -> Result<()> {
        let message = self.podman(&[&["container"], arguments, &[name]].concat())?;
        ensure!(
            message == name,
            "podman container {arguments:?} wrote {message:?}"
        );
        Ok(())
    }

    /// The state of a container in podman's words ("running", "exited", ...).
    pub fn podman_status(&self, name: &str) -> Result<String> {
        self.podman(&["inspect", "--format", "{{.State.Status}}", name])
    }

    /// Kills a container and waits until podman knows that it has ended: `podman wait` may return
    /// before that (seen with 5.4 on a loaded machine, where a restore was refused after it).
    ///
    /// # Errors
    /// podman fails, or takes it for alive after 30 s.
    pub fn podman_kill(&self, name: &str) -> Result<()> {
        self.podman(&["kill", name])?;
        self.podman_has_ended(name)
    }

    /// Waits until podman knows that a container has ended.
    ///
    /// # Errors
    /// podman fails, or takes it for alive after 30 s.
    pub fn podman_has_ended(&self, name: &str) -> Result<()> {
        wait_until_clear(|| {
            let status = self.podman_status(name)?;
            Ok((status != "exited").then(|| format!("{name} is {status}")))
        })
    }

    /// Kills and removes a container.
    pub fn podman_remove(&self, name: &str) -> Result<()> {
        self.podman(&["rm", "-f", "-t", "0", name]).map(drop)
    }
}

/// The options of `podman run` and `docker run` with which a container gets the GPU.
pub(crate) fn gpu_options(tag: &str) -> Vec<String> {
    let mut options = vec![
        format!("--volume={DRIVER}:{DRIVER}:ro"),
        format!("--env=LD_LIBRARY_PATH={DRIVER}/lib64"),
        format!("--env=STASIS_TAG={tag}"),
    ];
    options.extend(DEVICES.iter().map(|device| format!("--device={device}")));
    options
}
