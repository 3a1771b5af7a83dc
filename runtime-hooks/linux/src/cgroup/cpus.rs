//! The CPUs that a process may run on: `cpuset.cpus.effective`, and its file of version 1.

use std::fs;
use std::io;
use std::path::Path;

use super::{Cgroup, Version};

/// The CPUs of a process's cgroup, as the kernel lists them; `None` if none tells, and for a
/// process that has ended.
pub(crate) fn cpus_of(pid: i32) -> io::Result<Option<String>> {
    let cgroup = Cgroup::of_process(pid, "cpuset")?;
    Ok(cgroup.and_then(|cgroup| {
        // Where the controller is not enabled, that of a cgroup above counts.
        let mut directories = cgroup.with_ancestors();
        directories.find_map(|directory| cpus(directory, cgroup.version))
    }))
}

fn cpus(directory: &Path, version: Version) -> Option<String> {
    let name = match version {
        Version::V1 => "cpuset.effective_cpus",
        Version::V2 => "cpuset.cpus.effective",
    };
    let list = fs::read_to_string(directory.join(name)).ok()?;
    Some(list.trim().to_owned()).filter(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::processes::tests::directory_with;

    #[test]
    fn each_version_has_its_file() {
        let directory = directory_with(&[
            ("cpuset.effective_cpus", "0-3\n"),
            ("cpuset.cpus.effective", "5\n"),
        ]);
        let of = |version| cpus(directory.path(), version);
        assert_eq!(of(Version::V1).as_deref(), Some("0-3"));
        assert_eq!(of(Version::V2).as_deref(), Some("5"));
        let none = directory_with(&[("cpuset.cpus.effective", "\n")]);
        assert_eq!(cpus(none.path(), Version::V2), None);
        assert_eq!(cpus_of(i32::MAX).unwrap(), None);
    }
}
