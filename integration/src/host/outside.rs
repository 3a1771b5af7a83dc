//! Processes of a test host, as this process sees them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use super::Host;

impl Host {
    /// Returns the process that has the pid `inside` in the host, maybe in a pid namespace below.
    pub fn outside(&self, inside: &str) -> Result<Pid> {
        let gone = || format!("the host has no process {inside}");
        let wanted = Innermost::of(&self.path(format!("/proc/{inside}"))).with_context(gone)?;
        let names = fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.file_name()));
        names
            .filter_map(|name| name.to_str()?.parse().ok())
            .find(|pid| Innermost::of(Path::new(&format!("/proc/{pid}"))).as_ref() == Some(&wanted))
            .map(Pid::from_raw)
            .with_context(gone)
    }
}

/// A process by its pid namespace and its pid there.
#[derive(PartialEq, Eq)]
struct Innermost {
    namespace: std::path::PathBuf,
    pid: String,
}

impl Innermost {
    fn of(process: &Path) -> Option<Self> {
        let namespace = fs::read_link(process.join("ns/pid")).ok()?;
        let status = fs::read_to_string(process.join("status")).ok()?;
        let pids = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        let pid = pids.split_whitespace().last()?.to_owned();
        Some(Self { namespace, pid })
    }
}
