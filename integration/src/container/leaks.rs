//! Leaks of containers, of which there have to be none.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::check::wait::wait_until_clear;
use crate::host::installed::StasisHost;

impl StasisHost {
    /// Waits until nothing is left of containers, and with no container but these in the host, no
    /// socket of a shim.
    ///
    /// # Errors
    /// Something is left, after 30 s.
    pub fn nothing_left_of(&self, ids: &[&str]) -> Result<()> {
        self.no_container_left_of(ids)?;
        wait_until_clear(|| {
            let sockets = names_in(&self.path("/run/containerd/s"))?;
            Ok((!sockets.is_empty()).then(|| sockets.join("\n")))
        })
    }

    /// Removes a container, and waits as [`StasisHost::nothing_left_of`] does.
    pub fn ctr_remove_all_of(&self, id: &str) -> Result<()> {
        self.ctr_remove(id)?;
        self.nothing_left_of(&[id])
    }

    /// Waits as [`StasisHost::nothing_left_of`] does, for all but sockets.
    ///
    /// # Errors
    /// Something is left, after 30 s.
    pub fn no_container_left_of(&self, ids: &[&str]) -> Result<()> {
        wait_until_clear(|| {
            let left = self.left_of(ids)?;
            Ok((!left.is_empty()).then(|| left.join("\n")))
        })
    }

    /// Waits until no shim runs in the host.
    pub fn until_no_shim_runs(&self) -> Result<()> {
        wait_until_clear(|| {
            let shims = self.shims()?;
            Ok((!shims.is_empty()).then(|| format!("{shims:?} run")))
        })
    }

    /// Lists the remains of containers: mounts, bundles, runtime state, cgroups, and with no
    /// container but these in the host, shims.
    pub fn left_of(&self, ids: &[&str]) -> Result<Vec<String>> {
        let shims = self.shims()?;
        let mut left = shims.iter().map(|pid| format!("shim {pid}")).collect();
        self.mounts_into(&mut left)?;
        let mut named = BTreeSet::new();
        for state in [
            "/run/containerd",
            "/var/lib/containerd/io.containerd.runtime.v2.task",
        ] {
            directories_named(&self.path(state), ids, &mut named)?;
        }
        directories_named(&self.path("/sys/fs/cgroup"), ids, &mut named)?;
        left.extend(named);
        Ok(left)
    }

    fn mounts_into(&self, left: &mut Vec<String>) -> Result<()> {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", self.host.init()))?;
        let below = mounts
            .lines()
            .filter(|line| line.contains(" /run/containerd/"));
        left.extend(below.map(str::to_owned));
        Ok(())
    }
}

fn directories_named(directory: &Path, ids: &[&str], found: &mut BTreeSet<String>) -> Result<()> {
    // Directories of containers and cgroups vanish meanwhile.
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(());
    };
    for entry in entries {
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if ids.iter().any(|id| entry.file_name() == **id) {
            found.insert(entry.path().display().to_string());
        } else {
            directories_named(&entry.path(), ids, found)?;
        }
    }
    Ok(())
}

fn names_in(directory: &Path) -> Result<Vec<String>> {
    // The directory does not exist before the first shim.
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(Vec::new());
    };
    let names = entries.map(|entry| Ok(entry?.path().display().to_string()));
    names.collect()
}
