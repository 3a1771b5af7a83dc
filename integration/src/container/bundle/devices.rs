//! Changes to a container's specification, and the GPUs that the container has open.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Bundle, spec};
use crate::check::wait::wait_until_clear;

impl Bundle<'_> {
    /// Changes the specification, as an engine does that writes it anew for a restore.
    pub fn change(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut spec = self.spec()?;
        change(&mut spec);
        let path = self.stasis.path(self.directory()).join("config.json");
        Ok(std::fs::write(path, serde_json::to_vec(&spec)?)?)
    }

    /// Mounts a directory of the host in it, at `destination`.
    pub fn mount(&self, source: &str, destination: &str) -> Result<()> {
        self.change(|spec| {
            let mounts = spec["mounts"].as_array_mut();
            mounts.into_iter().for_each(|mounts| {
                mounts.push(json!({
                    "destination": destination, "source": source, "type": "bind", "options": ["rbind"]
                }));
            });
        })
    }

    /// Limits its memory to this many bytes, swap included.
    pub fn limit_memory(&self, bytes: u64) -> Result<()> {
        let limit = json!({ "limit": bytes, "swap": bytes });
        self.change(|spec| spec["linux"]["resources"]["memory"] = limit)
    }

    /// Changes what crun needs for checkpoints, and nothing that matters to runc.
    pub fn suit_crun(&self) -> Result<()> {
        if self.stasis.low_level == "crun" {
            // crun 1.28 makes checkpoints of masked paths and fails to restore them.
            self.change(|spec| {
                spec["linux"]["maskedPaths"] = json!([]);
                spec["linux"]["readonlyPaths"] = json!([]);
            })?;
        }
        // crun does not make the work directory.
        let work = format!("{}/work", self.directory());
        self.stasis.run(&["mkdir", "-p", &work])?;
        Ok(())
    }

    /// Returns the specification as it is now.
    pub fn spec(&self) -> Result<Value> {
        let path = self.stasis.path(self.directory()).join("config.json");
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// Gives the container these GPUs of the stand-in and no other device but the usual ones, as
    /// engines do.
    pub fn give(&self, gpus: &[usize]) -> Result<()> {
        let mut spec = self.spec()?;
        spec::give(&mut spec, gpus).context("there are not so many GPUs")?;
        self.change(|now| *now = spec)
    }

    /// Waits until its program has made `/ready`.
    pub fn until_ready(&self) -> Result<()> {
        wait_until_clear(|| Ok(self.exec("cat /ready").err().map(|error| error.to_string())))
    }

    /// Runs a script in a shell in the container, and returns its output.
    pub fn exec(&self, script: &str) -> Result<String> {
        // The container may make nodes; the device cgroup decides whether they open.
        let arguments = [
            "exec",
            "--cap",
            "CAP_MKNOD",
            &self.id,
            "/bin/sh",
            "-c",
            script,
        ];
        let output = self.runtime(&arguments).stdout(Stdio::piped()).output()?;
        let (stdout, errors) = (&output.stdout, &output.stderr);
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(errors)
        );
        Ok(String::from_utf8_lossy(stdout).trim().to_owned())
    }

    /// Returns the GPUs that the container's init process has open, as it names them.
    pub fn open_gpus(&self) -> Result<Vec<String>> {
        let descriptors = self.stasis.path(format!("/proc/{}/fd", self.pid()?));
        let mut gpus = Vec::new();
        for entry in std::fs::read_dir(descriptors)? {
            let target = std::fs::read_link(entry?.path())?
                .to_string_lossy()
                .into_owned();
            let number = target.strip_prefix("/dev/nvidia").unwrap_or_default();
            if number.parse::<u32>().is_ok() {
                gpus.push(target);
            }
        }
        gpus.sort();
        gpus.dedup();
        Ok(gpus)
    }
}
