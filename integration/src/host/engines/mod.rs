//! The container engines of a host: their settings, and their daemons.

mod older_containerd;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Host;
use crate::check::wait::wait_until_clear;

/// Settings that every host has, by path.
const SETTINGS: [(&str, &str); 5] = [
    (
        "/etc/containerd/config.toml",
        include_str!("../../../hosts/etc/containerd/config.toml"),
    ),
    (
        "/etc/containers/containers.conf",
        include_str!("../../../hosts/etc/containers/containers.conf"),
    ),
    (
        "/etc/containers/policy.json",
        include_str!("../../../hosts/etc/containers/policy.json"),
    ),
    (
        "/etc/containers/storage.conf",
        include_str!("../../../hosts/etc/containers/storage.conf"),
    ),
    (
        "/etc/docker/daemon.json",
        include_str!("../../../hosts/etc/docker/daemon.json"),
    ),
];

/// The time that a daemon may take until it answers; a loaded machine is slow, a broken one is not
/// waited for longer.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// A daemon of a host; it ends with the host, or when it is killed.
#[derive(Debug)]
pub struct Daemon<'host> {
    host: &'host Host,
    program: &'static str,
    pid: String,
}

impl Daemon<'_> {
    /// Returns the daemon's output so far, without the plugins that it loaded: a hundred lines hide
    /// the rest from readers of a test's output.
    pub fn log(&self) -> Result<String> {
        let path = self.host.path(log_path(self.program));
        let log = std::fs::read_to_string(&path)
            .with_context(|| format!("reading the log of {}", self.program))?;
        let told = log.lines().filter(|line| !line.contains("loading plugin"));
        Ok(told.collect::<Vec<_>>().join("\n"))
    }

    /// Kills the daemon, as a crash would: its containers stay. Waits for its end: the next daemon
    /// finds its pid in a file.
    pub fn kill(self) -> Result<()> {
        self.host.run(&["kill", "-KILL", &self.pid])?;
        let process = self.host.path(format!("/proc/{}", self.pid));
        wait_until_clear(|| Ok(process.exists().then(|| self.program.to_owned())))
    }
}

impl Host {
    /// Starts containerd and waits until `ctr` gets answers.
    pub fn containerd(&self) -> Result<Daemon<'_>> {
        self.start_daemon("containerd", &["ctr", "version"])
    }

    /// Starts dockerd, with a containerd of its own, and waits until `docker` gets answers.
    pub fn docker(&self) -> Result<Daemon<'_>> {
        self.start_daemon("dockerd", &["docker", "info"])
    }

    pub(super) fn configure_engines(&self) -> Result<()> {
        SETTINGS
            .iter()
            .try_for_each(|(path, content)| self.write(path, content))
    }

    pub(super) fn start_daemon(&self, program: &'static str, probe: &[&str]) -> Result<Daemon<'_>> {
        let script = format!(
            "setsid {program} </dev/null >>{} 2>&1 & echo $!",
            log_path(program)
        );
        let pid = self.run_for_text(&["bash", "-c", &script])?;
        let daemon = Daemon {
            host: self,
            program,
            pid,
        };
        let start = Instant::now();
        while let Err(error) = self.run(probe) {
            let running = self.run(&["kill", "-0", &daemon.pid]).is_ok();
            if !running || start.elapsed() > START_DEADLINE {
                bail!(
                    "{program} does not answer: {error}\nits log:\n{}",
                    daemon.log()?
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(daemon)
    }
}

fn log_path(program: &str) -> String {
    format!("/run/{program}.log")
}
