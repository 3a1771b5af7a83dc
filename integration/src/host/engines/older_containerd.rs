//! containerd 1.6, which none of the suites of hosts has any longer.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::host::cache::Cached;
use crate::host::installed::StasisHost;

const RECIPE: &str = include_str!("../../../hosts/older-containerd.sh");
const PROGRAMS: [&str; 3] = ["containerd", "ctr", "containerd-shim-runc-v2"];

impl StasisHost {
    /// Puts the programs of containerd 1.6 in the place of the host's, which must not run yet.
    pub fn install_older_containerd(&self) -> Result<()> {
        let older = Cached::obtain("containerd-1.6", RECIPE, fetch)?;
        for program in PROGRAMS {
            let path = format!("usr/bin/{program}");
            let inside = format!("/{path}");
            self.host.install(&older.path().join(path), &inside)?;
        }
        Ok(())
    }
}

fn fetch(path: &Path, log_path: &Path) -> Result<()> {
    let log = File::create(log_path).with_context(|| format!("opening {}", log_path.display()))?;
    let status = Command::new("bash")
        .args(["-c", RECIPE, "older-containerd"])
        .arg(path)
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("starting bash to fetch containerd 1.6")?;
    ensure!(
        status.success(),
        "fetching containerd 1.6: {status}; see {}",
        log_path.display()
    );
    Ok(())
}
