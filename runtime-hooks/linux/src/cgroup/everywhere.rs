//! Kills everything in the cgroup of a container of which there may be no record.
//!
//! The low-level runtime has no record of a container before its create or restore is complete. If
//! that is cut off, the container's processes can only be found by the cgroup: the init process,
//! CRIU (which runc puts there for a restore) and half-restored processes. A CRIU that dumps is
//! found as the tracer of these processes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Cgroup, FreezerState, Hierarchies, children, pids};
use crate::ProcessRef;
use crate::procfs::{Stat, Status};

const POLL: Duration = Duration::from_millis(5);

/// A cgroup in every hierarchy.
#[derive(Debug, Default)]
pub struct Everywhere {
    /// Its directory in each hierarchy.
    directories: Vec<PathBuf>,
    /// On cgroup v1 frozen processes do not die.
    freezer: Option<Cgroup>,
}

impl Everywhere {
    /// The cgroup of a path, whether it exists or not.
    pub fn at(path: &Path) -> io::Result<Self> {
        let hierarchies = Hierarchies::read()?;
        Ok(Self {
            directories: hierarchies.everywhere(path),
            freezer: hierarchies.v1("freezer", path).map(Cgroup::v1),
        })
    }

    /// The pids of its processes; a cgroup that does not exist has none.
    pub fn pids(&self) -> BTreeSet<i32> {
        let directories = self.directories.iter();
        let all = directories.map(|directory| pids(directory).unwrap_or_default());
        all.flatten().collect()
    }

    /// Kills every process, and waits until they have left the cgroup, or `limit` has passed.
    /// Returns those that are still there: one that waits in the kernel does not end.
    pub fn kill(&self, limit: Duration) -> BTreeSet<i32> {
        let deadline = Instant::now() + limit;
        loop {
            let pids = self.pids();
            if pids.is_empty() || Instant::now() > deadline {
                return pids;
            }
            if let Some(freezer) = &self.freezer {
                let _ = freezer.request(FreezerState::Thawed);
            }
            for pid in pids {
                kill_criu(pid);
                self.kill_one(pid);
            }
            sleep(POLL);
        }
    }

    /// Kills every process and removes the cgroup; the limit is that of each step.
    pub fn remove(&self, limit: Duration) {
        self.kill(limit);
        for directory in &self.directories {
            let deadline = Instant::now() + limit;
            // A killed process stays in its cgroup until the kernel has torn it down.
            while directory.exists() && remove_all(directory).is_err() && Instant::now() < deadline
            {
                sleep(POLL);
            }
        }
    }

    fn kill_one(&self, pid: i32) {
        if let Ok(Some(process)) = ProcessRef::open(pid)
            // Before it was open, the pid may have been reused by another process.
            && self.pids().contains(&pid)
        {
            let _ = process.kill();
        }
    }
}

/// Kills the CRIU that dumps a process. It outlives the runtime that started it and may wait for
/// ever for its tracees, which were killed; they stay zombies as long as it lives.
fn kill_criu(dumped: i32) {
    if let Some(pid) = tracer_of(dumped)
        && let Ok(Some(tracer)) = ProcessRef::open(pid)
        // The tracer may be a debugger; and before it was open, the pid may have been reused.
        && is_criu(pid)
        && tracer_of(dumped) == Some(pid)
    {
        let _ = tracer.kill();
    }
}

fn is_criu(pid: i32) -> bool {
    matches!(Stat::of(pid), Ok(Some(stat)) if stat.name == b"criu")
}

fn tracer_of(pid: i32) -> Option<i32> {
    let tracer = Status::of(pid).ok()??.tracer()?;
    (tracer > 0).then_some(tracer)
}

fn remove_all(directory: &Path) -> io::Result<()> {
    for below in children(directory)? {
        remove_all(&below)?;
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_cgroup_is_removed_with_its_sub_cgroups() {
        let directory = tempfile::tempdir().unwrap();
        let cgroup = directory.path().join("c1");
        fs::create_dir_all(cgroup.join("inner")).unwrap();
        let cgroups = Everywhere {
            directories: vec![cgroup.clone()],
            freezer: None,
        };
        cgroups.remove(Duration::ZERO);
        assert!(!cgroup.exists());
    }
}
