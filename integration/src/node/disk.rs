//! The kernel and the disk of a node, made once from the root file system of a test host.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::host::Suite;
use crate::host::cache::Cached;
use crate::host::root_fs::RootFs;

const RECIPE: &str = include_str!("../../hosts/node/build.sh");

/// The kernel and disk that nodes boot from; they stay as they are as long as this value lives.
#[derive(Debug)]
pub(super) struct Base {
    cached: Cached,
}

impl Base {
    /// Returns the cached base, built if needed.
    pub(super) fn obtain() -> Result<Self> {
        let root_fs = RootFs::obtain(Suite::Trixie)?;
        let recipe = format!("{RECIPE}\0{}", root_fs.path().display());
        let cached = Cached::obtain("node", &recipe, |path, log| build(&root_fs, path, log))?;
        Ok(Self { cached })
    }

    pub(super) fn kernel(&self) -> PathBuf {
        self.cached.path().join("kernel")
    }

    pub(super) fn initrd(&self) -> PathBuf {
        self.cached.path().join("initrd")
    }

    /// Makes a disk with the content of the cached one, until it is written to.
    pub(super) fn make_disk(&self, path: &Path) -> Result<()> {
        let output = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
            .args([&self.cached.path().join("disk"), path])
            .output()
            .context("starting qemu-img")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "qemu-img: {stderr}");
        Ok(())
    }
}

fn build(root_fs: &RootFs, path: &Path, log_path: &Path) -> Result<()> {
    let log = File::create(log_path).with_context(|| format!("opening {}", log_path.display()))?;
    let status = Command::new("bash")
        .args(["-c", RECIPE, "build"])
        .args([root_fs.path(), path])
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("starting bash to build a node")?;
    let log = log_path.display();
    ensure!(status.success(), "building the node: {status}; see {log}");
    Ok(())
}
