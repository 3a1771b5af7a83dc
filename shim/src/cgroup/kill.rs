//! Kills everything in the cgroup of a container whose shim was killed.
//!
//! The low-level runtime has no record of a container before its create or restore is complete. If
//! it dies with the shim before that, its processes can only be found by the cgroup: the init
//! process, CRIU (which runc puts there for a restore) and half-restored processes. A CRIU that
//! dumps is found as the tracer of these processes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use stasis_linux::cgroup::{self, Cgroup, FreezerState, Hierarchies, children};
use stasis_linux::procfs::{Stat, Status};

use crate::cgroup::error::CgroupError;

/// Killed processes end within milliseconds. One in an uninterruptible wait (state D) is given up.
const DEADLINE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// The cgroup of a container whose shim has died.
#[derive(Debug, Default)]
pub(crate) struct ContainerCgroup {
    /// Its directory in each hierarchy.
    directories: Vec<PathBuf>,
    /// On cgroup v1 frozen processes do not die.
    freezer: Option<Cgroup>,
}

impl ContainerCgroup {
    /// Finds the cgroup from `linux.cgroupsPath` of the specification. One whose name does not
    /// contain the container's id may be shared with other containers, and is left alone.
    pub(crate) fn find(cgroups_path: Option<&Path>, id: &str) -> Result<Self, CgroupError> {
        // A relative path depends on the cgroup of the runtime's caller; containerd's callers give
        // none.
        let path = cgroups_path.and_then(|path| cgroup::cgroups_path(path.to_str()?));
        let own = path.filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().contains(id)
        });
        let Some(path) = own else {
            return Ok(Self::default());
        };
        let hierarchies = Hierarchies::read().map_err(CgroupError::Mounts)?;
        Ok(Self {
            directories: hierarchies.everywhere(&path),
            freezer: hierarchies.v1("freezer", &path).map(Cgroup::v1),
        })
    }

    /// Kills every process.
    pub(crate) fn kill(&self) {
        let deadline = Instant::now() + DEADLINE;
        while let pids @ [_, ..] = &*self.pids() {
            if let Some(freezer) = &self.freezer {
                let _ = freezer.request(FreezerState::Thawed);
            }
            for pid in pids {
                kill_criu(*pid);
                self.kill_one(*pid);
            }
            if Instant::now() > deadline {
                return;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Kills every process and removes the cgroup.
    pub(crate) fn remove(&self) {
        self.kill();
        for directory in &self.directories {
            let deadline = Instant::now() + DEADLINE;
            // A killed process stays in its cgroup until the kernel has torn it down.
            while directory.exists() && remove_all(directory).is_err() && Instant::now() < deadline
            {
                std::thread::sleep(POLL);
            }
        }
    }

    fn pids(&self) -> Vec<Pid> {
        let mut pids = BTreeSet::new();
        for directory in &self.directories {
            // A cgroup that does not exist has none.
            pids.extend(cgroup::pids(directory).unwrap_or_default());
        }
        pids.into_iter().filter_map(Pid::from_raw).collect()
    }

    fn kill_one(&self, pid: Pid) {
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        // Before the pidfd was open, the pid may have been reused by another process.
        if self.pids().contains(&pid) {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

/// Kills the CRIU that dumps a process. It outlives the runtime that started it and may wait for
/// ever for its tracees, which were killed; they stay zombies as long as it lives.
fn kill_criu(dumped: Pid) {
    let Some(tracer) = tracer_of(dumped) else {
        return;
    };
    let Ok(process) = pidfd_open(tracer, PidfdFlags::empty()) else {
        return;
    };
    // The tracer may be a debugger; and before the pidfd was open, the pid may have been reused.
    if is_criu(tracer) && tracer_of(dumped) == Some(tracer) {
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

fn is_criu(pid: Pid) -> bool {
    matches!(Stat::of(pid.as_raw_nonzero().get()), Ok(Some(stat)) if stat.name == b"criu")
}

fn tracer_of(pid: Pid) -> Option<Pid> {
    let status = Status::of(pid.as_raw_nonzero().get()).ok()??;
    status.tracer().and_then(Pid::from_raw)
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
    fn a_cgroup_that_is_not_named_for_the_container_is_left_alone() {
        let cgroup = ContainerCgroup::find(Some(Path::new("/shared")), "c1").unwrap();
        assert!(cgroup.directories.is_empty());
    }

    #[test]
    fn an_empty_cgroup_is_removed_with_its_sub_cgroups() {
        let directory = tempfile::tempdir().unwrap();
        let cgroup = directory.path().join("c1");
        fs::create_dir_all(cgroup.join("inner")).unwrap();
        let directories = vec![cgroup.clone()];
        let freezer = None;
        ContainerCgroup {
            directories,
            freezer,
        }
        .remove();
        assert!(!cgroup.exists());
    }
}
