//! What is left in a container's cgroup when its shim was killed.
//!
//! The low-level runtime knows nothing of a container before its create or restore is over. When it
//! dies on the way with the shim, its init process, CRIU (which runc puts there for a restore) and
//! half-restored processes are found by the cgroup alone, and a CRIU that dumps by what it traces.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::bundle::Bundle;
use crate::cgroup::directories_of;
use crate::error::Result;

/// Killed processes are gone within milliseconds; one that the kernel holds has to be left.
const DEADLINE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// The cgroup of a container that has no shim any more.
#[derive(Debug)]
pub(crate) struct Remains {
    /// One for each hierarchy.
    directories: Vec<PathBuf>,
}

impl Remains {
    /// Finds the cgroup that the specification names. One without the container's id in its name
    /// may be shared with others, and is left alone.
    pub(crate) fn of(bundle: &Bundle, id: &str) -> Result<Self> {
        let spec = bundle.spec()?;
        let linux = spec.linux().as_ref();
        let path = linux.and_then(|linux| linux.cgroups_path().as_ref());
        let path = path.and_then(|path| in_hierarchy(&path.to_string_lossy()));
        let own = path.filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().contains(id)
        });
        let directories = match own {
            Some(path) => directories_of(&path.to_string_lossy())?,
            None => Vec::new(),
        };
        Ok(Self { directories })
    }

    /// Kills every process.
    pub(crate) fn kill(&self) {
        let deadline = Instant::now() + DEADLINE;
        while let pids @ [_, ..] = &*self.pids() {
            for directory in &self.directories {
                // On cgroup v1 frozen processes do not die; others have no such file.
                let state = directory.join("freezer.state");
                if state.exists() {
                    let _ = fs::write(state, "THAWED");
                }
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
            // The kernel takes a moment to let go of killed processes.
            while directory.exists() && remove_all(directory).is_err() && Instant::now() < deadline
            {
                std::thread::sleep(POLL);
            }
        }
    }

    fn pids(&self) -> Vec<Pid> {
        let mut pids = BTreeSet::new();
        for directory in &self.directories {
            collect(directory, &mut pids);
        }
        pids.into_iter().filter_map(Pid::from_raw).collect()
    }

    fn kill_one(&self, pid: Pid) {
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        // Before the pidfd was there, the pid may have become another process's.
        if self.pids().contains(&pid) {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

/// Kills the CRIU that dumps a process. It outlives the runtime that started it, may wait for ever for
/// the processes that were killed below it, and they stay zombies as long as it does not.
fn kill_criu(dumped: Pid) {
    let Some(tracer) = tracer_of(dumped) else {
        return;
    };
    let Ok(process) = pidfd_open(tracer, PidfdFlags::empty()) else {
        return;
    };
    let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
    // It may be somebody's debugger; and before the pidfd was there, the pid may have become another
    // process's.
    if name.trim() == "criu" && tracer_of(dumped) == Some(tracer) {
        let _ = pidfd_send_signal(&process, Signal::KILL);
    }
}

fn tracer_of(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok().and_then(Pid::from_raw)
}

/// The path of a cgroup in its hierarchy, as runc understands `linux.cgroupsPath`: absolute, or
/// "slice:prefix:name" for systemd (runc docs/systemd.md). A relative path depends on whoever
/// started the runtime; containerd's callers give none.
fn in_hierarchy(path: &str) -> Option<PathBuf> {
    if path.starts_with('/') {
        return Some(PathBuf::from(path));
    }
    let mut parts = path.split(':');
    let (slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    let unit = match (prefix, name) {
        (_, slice) if slice.ends_with(".slice") => slice.to_owned(),
        ("", name) => format!("{name}.scope"),
        (prefix, name) => format!("{prefix}-{name}.scope"),
    };
    let slice = if slice.is_empty() {
        "system.slice"
    } else {
        slice
    };
    Some(expand(slice).join(unit))
}

/// "a-b.slice" is below "a.slice" (systemd.slice(5)).
fn expand(slice: &str) -> PathBuf {
    let name = slice.trim_end_matches(".slice");
    let ends = name.match_indices('-').map(|(end, _)| end);
    let mut path = PathBuf::from("/");
    // "-.slice" is the root.
    for end in ends.chain([name.len()]).filter(|end| *end > 0) {
        if name != "-" {
            path.push(format!("{}.slice", &name[..end]));
        }
    }
    path
}

/// The pids in a cgroup and below it. What vanishes meanwhile holds none.
fn collect(directory: &Path, pids: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for below in cgroups_in(directory) {
        collect(&below, pids);
    }
}

fn remove_all(directory: &Path) -> io::Result<()> {
    for below in cgroups_in(directory) {
        remove_all(&below)?;
    }
    fs::remove_dir(directory)
}

fn cgroups_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_path_are_understood() {
        for (given, wanted) in [
            ("/default/c1", "/default/c1"),
            ("system.slice:docker:c1", "/system.slice/docker-c1.scope"),
            (
                "kubepods-burstable-pod1.slice:cri-containerd:c1",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/\
                 cri-containerd-c1.scope",
            ),
            ("-.slice::c1", "/c1.scope"),
            (":a:b.slice", "/system.slice/b.slice"),
        ] {
            assert_eq!(in_hierarchy(given), Some(PathBuf::from(wanted)), "{given}");
        }
        assert_eq!(in_hierarchy("default/c1"), None);
    }

    #[test]
    fn a_cgroup_that_is_not_named_for_the_container_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let config = r#"{"ociVersion":"1.0.2","linux":{"cgroupsPath":"/shared"}}"#;
        fs::write(directory.path().join("config.json"), config).unwrap();
        let remains = Remains::of(&Bundle::new(directory.path()), "c1").unwrap();
        assert!(remains.directories.is_empty());
    }

    #[test]
    fn nothing_left_is_nothing_to_wait_for() {
        let directory = tempfile::tempdir().unwrap();
        let cgroup = directory.path().join("c1");
        fs::create_dir_all(cgroup.join("inner")).unwrap();
        let remains = Remains {
            directories: vec![cgroup.clone()],
        };
        remains.remove();
        assert!(!cgroup.exists());
    }
}
