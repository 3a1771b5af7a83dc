//! The cache of root file systems: one a suite, named by a digest of the recipe that made it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Suite;

const RECIPE: &str = include_str!("../../hosts/build.sh");
const PACKAGES: &str = include_str!("../../hosts/packages.txt");

/// A root file system that stays in the cache as long as this value lives.
#[derive(Debug)]
pub(super) struct RootFs {
    path: PathBuf,
    mountpoint: PathBuf,
    /// Shared while hosts use the cache, exclusive while its content changes.
    _lock: File,
}

impl RootFs {
    /// The suite's root file system: the one that `STASIS_HOST_<SUITE>` names, else the cached one,
    /// built if needed.
    pub(super) fn obtain(suite: Suite) -> Result<RootFs> {
        let cache = cache_directory();
        let mountpoint = cache.join("mnt");
        fs::create_dir_all(&mountpoint)
            .with_context(|| format!("making {}", mountpoint.display()))?;
        let lock_path = cache.join(format!("{}.lock", suite.name()));
        let lock =
            File::create(&lock_path).with_context(|| format!("opening {}", lock_path.display()))?;
        if let Some(path) = std::env::var_os(format!("STASIS_HOST_{}", suite.name().to_uppercase()))
        {
            return Ok(RootFs {
                path: path.into(),
                mountpoint,
                _lock: lock,
            });
        }
        let path = cache.join(format!("{}-{}", suite.name(), recipe_digest()));
        lock.lock_shared()?;
        while !path.exists() {
            lock.unlock()?;
            lock.lock()?;
            if !path.exists() {
                build(suite, &cache, &path)?;
            }
            lock.unlock()?;
            lock.lock_shared()?;
        }
        Ok(RootFs {
            path,
            mountpoint,
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory that a host, in its own mount namespace, puts its root on.
    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
}

fn cache_directory() -> PathBuf {
    let cache = std::env::var_os("STASIS_CACHE").unwrap_or_else(|| "/var/cache/stasis".into());
    PathBuf::from(cache).join("hosts")
}

fn recipe_digest() -> String {
    let digest = blake3::hash(format!("{RECIPE}\0{PACKAGES}").as_bytes());
    digest.to_hex()[..12].to_owned()
}

/// Builds beside the final place and renames, so that an interrupted build is never taken for a
/// whole one.
fn build(suite: Suite, cache: &Path, path: &Path) -> Result<()> {
    remove_old(suite, cache)?;
    let unfinished = path.with_extension("unfinished");
    let log_path = cache.join(format!("{}.log", suite.name()));
    let log = File::create(&log_path).with_context(|| format!("opening {}", log_path.display()))?;
    let status = Command::new("bash")
        .args(["-c", RECIPE, "build", suite.name()])
        .arg(&unfinished)
        .args(PACKAGES.split_whitespace())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("starting bash to build a test host")?;
    ensure!(
        status.success(),
        "building the {} test host: {status}; see {} and run integration/hosts/install-requirements.sh if a program is \
         missing",
        suite.name(),
        log_path.display()
    );
    fs::rename(&unfinished, path).with_context(|| format!("renaming {}", unfinished.display()))
}

fn remove_old(suite: Suite, cache: &Path) -> Result<()> {
    let prefix = format!("{}-", suite.name());
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}
