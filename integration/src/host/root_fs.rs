//! The root file systems of test hosts, one a suite.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Suite;
use super::cache::{self, Cached};

const RECIPE: &str = include_str!("../../hosts/build.sh");
const PACKAGES: &str = include_str!("../../hosts/packages.txt");

/// A root file system that stays as it is as long as this value lives.
#[derive(Debug)]
pub(crate) struct RootFs {
    path: PathBuf,
    mountpoint: PathBuf,
    _cached: Option<Cached>,
}

impl RootFs {
    /// Returns the suite's root file system: the one that `STASIS_HOST_<SUITE>` names, else the
    /// cached one, built if needed.
    pub(crate) fn obtain(suite: Suite) -> Result<RootFs> {
        let mountpoint = cache::directory().join("mnt");
        fs::create_dir_all(&mountpoint)
            .with_context(|| format!("making {}", mountpoint.display()))?;
        let named = std::env::var_os(format!("STASIS_HOST_{}", suite.name().to_uppercase()));
        if let Some(path) = named {
            return Ok(RootFs {
                path: path.into(),
                mountpoint,
                _cached: None,
            });
        }
        let recipe = format!("{RECIPE}\0{PACKAGES}");
        let cached = Cached::obtain(suite.name(), &recipe, |path, log| build(suite, path, log))?;
        Ok(RootFs {
            path: cached.path().to_owned(),
            mountpoint,
            _cached: Some(cached),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory that a host, in its own mount namespace, puts its root on.
    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
}

fn build(suite: Suite, path: &Path, log_path: &Path) -> Result<()> {
    let log = File::create(log_path).with_context(|| format!("opening {}", log_path.display()))?;
    let status = Command::new("bash")
        .args(["-c", RECIPE, "build", suite.name()])
        .arg(path)
        .args(PACKAGES.split_whitespace())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("starting bash to build a test host")?;
    ensure!(
        status.success(),
        "building the {} test host: {status}; see {} and run \
         integration/hosts/install-requirements.sh if a program is missing",
        suite.name(),
        log_path.display()
    );
    Ok(())
}
