//! How much of the CPUs a process may use: `cpu.max`, and its two files of version 1.

use std::fs;
use std::io;
use std::path::Path;

use super::{Cgroup, Version};
use crate::procfs::number;

/// How many CPUs a process may keep busy, by its cgroup and those above it: at least one, what is
/// left of a further one not counted. `None` without a limit, and for a process that has ended.
pub fn cpu_limit(pid: i32) -> io::Result<Option<u64>> {
    let cgroup = Cgroup::of_process(pid, "cpu")?;
    Ok(cgroup.and_then(|cgroup| {
        let limits = cgroup.with_ancestors();
        limits
            .filter_map(|directory| limit(directory, cgroup.version))
            .min()
    }))
}

/// A directory without these files, as that of the root, has no limit.
fn limit(directory: &Path, version: Version) -> Option<u64> {
    let read = |name: &str| fs::read(directory.join(name)).ok();
    let (quota, period) = match version {
        Version::V1 => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
        Version::V2 => {
            let text = read("cpu.max")?;
            let (quota, period) = text.split_at(text.iter().position(|byte| *byte == b' ')?);
            (quota.to_vec(), period.to_vec())
        }
    };
    // Without a limit it is "max" or -1.
    let quota: u64 = number(quota.trim_ascii())?;
    let period: u64 = number(period.trim_ascii())?;
    Some(quota.checked_div(period)?.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::processes::tests::directory_with;

    #[test]
    fn the_quota_is_counted_in_whole_cpus() {
        for (text, expected) in [
            ("max 100000\n", None),
            ("200000 100000\n", Some(2)),
            ("350000 100000\n", Some(3)),
            ("5000 100000\n", Some(1)),
            ("5000 0\n", None),
            ("", None),
        ] {
            let directory = directory_with(&[("cpu.max", text)]);
            assert_eq!(limit(directory.path(), Version::V2), expected, "{text}");
        }
        for (quota, expected) in [("-1\n", None), ("400000\n", Some(4))] {
            let files = [
                ("cpu.cfs_quota_us", quota),
                ("cpu.cfs_period_us", "100000\n"),
            ];
            let directory = directory_with(&files);
            assert_eq!(limit(directory.path(), Version::V1), expected, "{quota}");
        }
        let none = directory_with(&[]);
        assert_eq!(limit(none.path(), Version::V1), None);
    }

    #[test]
    fn our_own_is_read() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_ne!(cpu_limit(own).unwrap(), Some(0));
        assert_eq!(cpu_limit(i32::MAX).unwrap(), None);
    }
}
