//! cgroups of version 1, of version 2, and of both at once (cgroups(7)).
//!
//! * [`Hierarchies`]: where the hierarchies are mounted.
//! * [`Membership`]: the cgroups of a process.
//! * [`Cgroup`]: a directory of a hierarchy, its processes, its ancestors and its freezer.
//! * [`Everywhere`]: a container's cgroup in all hierarchies, of which everything is killed.
//! * [`cgroups_path`]: the cgroup that an OCI specification names.
//! * [`cpu_limit`]: how much of the CPUs a process may use.
//! * [`cpus_of`]: the CPUs that it may run on.
//! * [`move_to_own_cgroup`]: moves a process out of the cgroups of its starter.
//! * [`criu_yard`]: the cgroup mounts that a CRIU leaves when it is killed.

mod cgroups_path;
mod cpu_limit;
mod cpus;
pub mod criu_yard;
mod everywhere;
mod freezer;
mod hierarchies;
mod membership;
mod own_cgroup;
mod processes;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use cgroups_path::cgroups_path;
pub use cpu_limit::cpu_limit;
pub(crate) use cpus::cpus_of;
pub use everywhere::Everywhere;
pub use freezer::{FreezerError, FreezerState, is_frozen};
pub use hierarchies::Hierarchies;
pub use membership::Membership;
pub use own_cgroup::move_to_own_cgroup;
pub use processes::{is_removed, pids};

/// A cgroup: a directory of one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    directory: PathBuf,
    version: Version,
}

/// The version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One of several hierarchies, each with controllers of its own.
    V1,
    /// The unified hierarchy. Every cgroup of it has a freezer; a controller may not be enabled.
    V2,
}

impl Cgroup {
    /// A cgroup of version 1: its directory in the hierarchy of one controller.
    #[must_use]
    pub fn v1(directory: PathBuf) -> Self {
        let version = Version::V1;
        Self { directory, version }
    }

    /// A cgroup of the unified hierarchy.
    #[must_use]
    pub fn v2(directory: PathBuf) -> Self {
        let version = Version::V2;
        Self { directory, version }
    }

    /// The cgroup of a directory that has a freezer, of the version that its files are of.
    #[must_use]
    pub fn with_freezer(directory: PathBuf) -> Self {
        if directory.join("freezer.state").exists() {
            Self::v1(directory)
        } else {
            Self::v2(directory)
        }
    }

    /// The cgroup of a process that a controller (of version 1 or 2) applies to; `None` if the
    /// process has ended, or no mount shows the cgroup.
    pub fn of_process(pid: i32, controller: &str) -> io::Result<Option<Self>> {
        let Some(membership) = Membership::of(pid)? else {
            return Ok(None);
        };
        Ok(Hierarchies::read()?.cgroup_of(&membership, controller))
    }

    /// The cgroups whose freezer can hold a process: on a hybrid host it has one in the freezer
    /// hierarchy of version 1, which comes first, and one in the unified hierarchy.
    pub(crate) fn freezers_of(pid: i32) -> io::Result<Vec<Self>> {
        let Some(membership) = Membership::of(pid)? else {
            return Ok(Vec::new());
        };
        Ok(Hierarchies::read()?.freezers_of(&membership))
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The version of its hierarchy.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its directory and those of the cgroups above it, up to the root of what is mounted.
    pub fn with_ancestors(&self) -> impl Iterator<Item = &Path> {
        // Every cgroup has this file, and no directory outside of a hierarchy has it.
        let is_cgroup = |directory: &&Path| directory.join("cgroup.procs").exists();
        self.directory.ancestors().take_while(is_cgroup)
    }

    /// The directories of the cgroups directly below it.
    pub fn children(&self) -> io::Result<Vec<PathBuf>> {
        children(&self.directory)
    }
}

/// The directories of the cgroups directly below the one of a directory.
pub fn children(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ancestors_end_with_the_mount() {
        let outside = tempfile::tempdir().unwrap();
        let mount = outside.path().join("memory");
        let inner = mount.join("pod/c1/inner");
        fs::create_dir_all(&inner).unwrap();
        for directory in inner.ancestors().take(4) {
            fs::write(directory.join("cgroup.procs"), "").unwrap();
        }
        let cgroup = Cgroup::v1(inner.clone());
        let expected = ["pod/c1/inner", "pod/c1", "pod", ""].map(|path| mount.join(path));
        assert_eq!(cgroup.with_ancestors().collect::<Vec<_>>(), expected);
        assert_eq!(
            Cgroup::v1(mount.join("pod/c1")).children().unwrap(),
            [inner]
        );
    }
}
