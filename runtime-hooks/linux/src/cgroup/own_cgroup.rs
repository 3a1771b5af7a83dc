//! A cgroup at the root of every hierarchy, for processes that outlive their starters.
//!
//! systemd ends the processes left in a unit or a session, and container engines those left in a
//! pod, by cgroup. A cgroup at the root belongs to none of them: the cgroupfs drivers of container
//! engines make theirs in the same place, and systemd leaves those alone.

use std::fs;
use std::io;
use std::path::Path;

use super::{Cgroup, Hierarchies};

/// A cgroup of version 1 takes no process before these are set (cpuset(7)).
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// Moves a process into the cgroup `name` at the root of each hierarchy that this process sees.
/// In a hierarchy that does not allow it, the process stays where it is.
pub fn move_to_own_cgroup(pid: u32, name: &str) -> io::Result<()> {
    for cgroup in Hierarchies::read()?.everywhere(&Path::new("/").join(name)) {
        // A hierarchy may be mounted read-only, as in most containers.
        let _ = enter(pid, &cgroup);
    }
    Ok(())
}

impl Cgroup {
    /// Moves a process out of this cgroup, into the cgroup `name` at the root of its hierarchy.
    pub fn move_out(&self, pid: u32, name: &str) -> io::Result<()> {
        let root = self.with_ancestors().last();
        let root = root.ok_or(io::ErrorKind::NotFound)?;
        enter(pid, &root.join(name))
    }
}

fn enter(pid: u32, cgroup: &Path) -> io::Result<()> {
    match fs::create_dir(cgroup) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if let Some(root) = cgroup.parent() {
        for file in CPUSET.iter().filter(|file| root.join(file).exists()) {
            // Version 2 has these files, too, and needs nothing in them.
            let _ = fs::read(root.join(file)).and_then(|set| fs::write(cgroup.join(file), set));
        }
    }
    fs::write(cgroup.join("cgroup.procs"), pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Membership;

    #[test]
    fn a_process_leaves_the_cgroups_of_its_starter() {
        let name = format!("stasis-test-apart-{}", std::process::id());
        let mut child = std::process::Command::new("sleep").arg("60").spawn();
        let child = child.as_mut().unwrap();
        move_to_own_cgroup(child.id(), &name).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let membership = Membership::of(pid).unwrap().unwrap();
        let hierarchies = Hierarchies::read().unwrap();
        let made: Vec<_> = hierarchies.everywhere(&Path::new("/").join(&name));
        let made: Vec<_> = made.iter().filter(|path| path.is_dir()).collect();
        let mut paths = membership.v1_controllers().map(|(_, path)| path);
        let is_apart = |path: &Path| path.ends_with(&name);
        assert!(made.is_empty() || paths.any(is_apart) || membership.v2().is_some_and(is_apart));
        child.kill().unwrap();
        child.wait().unwrap();
        for cgroup in made {
            // The kernel takes a moment to remove an ended process from its cgroup.
            while fs::remove_dir(cgroup).is_err_and(|error| {
                error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error())
            }) {}
        }
    }
}
