//! Materials of test hosts, made once, and named by a digest of the recipe that made them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A directory that stays in the cache as long as this value lives.
#[derive(Debug)]
pub(crate) struct Cached {
    path: PathBuf,
    /// Shared while a process uses the directory, exclusive while it changes.
    _lock: File,
}

impl Cached {
    /// Returns the directory `name` of this recipe. If it does not exist, `make` makes it, at a
    /// path where nothing is, with a file for its output. Directories of other recipes are removed.
    pub(crate) fn obtain(
        name: &str,
        recipe: &str,
        make: impl Fn(&Path, &Path) -> Result<()>,
    ) -> Result<Self> {
        let cache = directory();
        fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
        let lock_path = cache.join(format!("{name}.lock"));
        let lock =
            File::create(&lock_path).with_context(|| format!("opening {}", lock_path.display()))?;
        let digest = blake3::hash(recipe.as_bytes()).to_hex();
        let path = cache.join(format!("{name}-{}", &digest[..12]));
        lock.lock_shared()?;
        while !path.exists() {
            lock.unlock()?;
            lock.lock()?;
            if !path.exists() {
                remove_old(name, &cache)?;
                // An interrupted attempt is never taken for a whole one.
                let unfinished = path.with_extension("unfinished");
                make(&unfinished, &cache.join(format!("{name}.log")))?;
                fs::rename(&unfinished, &path)
                    .with_context(|| format!("renaming {}", unfinished.display()))?;
            }
            lock.unlock()?;
            lock.lock_shared()?;
        }
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the directory of the cache.
pub(super) fn directory() -> PathBuf {
    let cache = std::env::var_os("STASIS_CACHE").unwrap_or_else(|| "/var/cache/stasis".into());
    PathBuf::from(cache).join("hosts")
}

fn remove_old(name: &str, cache: &Path) -> Result<()> {
    let prefix = format!("{name}-");
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}
