//! The cgroups that a process is in: `/proc/PID/cgroup` (cgroups(7)).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::procfs;

/// There are at most 16 hierarchies of version 1 (`CGROUP_HIERARCHY`), and a path is no longer
/// than PATH_MAX.
const MAX_BYTES: u64 = 128 << 10;

/// The cgroup of a process in each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// Separated by commas; empty for the unified hierarchy.
    controllers: Vec<u8>,
    path: PathBuf,
}

impl Membership {
    /// Reads the cgroups of a process; `None` if it has ended. A process may be in a sub-cgroup of
    /// its container's cgroup.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let Some(text) = procfs::read(&path, MAX_BYTES)? else {
            return Ok(None);
        };
        let membership = Self::parse(&text).ok_or_else(|| procfs::malformed(&path))?;
        Ok(Some(membership))
    }

    /// The text of a `/proc/PID/cgroup`: lines "id:controllers:path". A path is any bytes but a
    /// newline, which the kernel does not accept in a name (`cgroup_mkdir` in
    /// kernel/cgroup/cgroup.c); it may hold colons.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let lines = text.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty()).map(|line| {
            let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
            Some(Line {
                controllers: fields.next()?.to_owned(),
                path: OsStr::from_bytes(fields.next()?).into(),
            })
        });
        let lines = lines.collect::<Option<_>>()?;
        Some(Self { lines })
    }

    /// The path in the version 1 hierarchy of a controller.
    pub fn v1(&self, controller: &str) -> Option<&Path> {
        let mut all = self.v1_controllers();
        all.find_map(|(name, path)| (name == controller.as_bytes()).then_some(path))
    }

    /// The path in the unified hierarchy.
    pub fn v2(&self) -> Option<&Path> {
        let unified = self.lines.iter().find(|line| line.controllers.is_empty());
        unified.map(|line| line.path.as_path())
    }

    /// The longest path in any hierarchy: which of them names the service, session or pod differs
    /// between machines.
    pub fn deepest(&self) -> Option<&Path> {
        let paths = self.lines.iter().map(|line| line.path.as_path());
        paths.max_by_key(|path| path.as_os_str().len())
    }

    /// Every controller of version 1 with the path in its hierarchy. A hierarchy with a name
    /// ("name=systemd") has no controllers.
    pub fn v1_controllers(&self) -> impl Iterator<Item = (&[u8], &Path)> {
        self.lines.iter().flat_map(|line| {
            let controllers = line.controllers.split(|byte| *byte == b',');
            let controllers = controllers.filter(|name| !name.is_empty() && !name.contains(&b'='));
            controllers.map(|name| (name, line.path.as_path()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hierarchy_has_its_path() {
        let text = b"9:name=systemd:/s\n4:memory:/k8s/pod:1/c1\n2:cpu,cpuacct:/c\n0::/u\n";
        let membership = Membership::parse(text).unwrap();
        assert_eq!(membership.v1("memory"), Some(Path::new("/k8s/pod:1/c1")));
        assert_eq!(membership.v1("cpuacct"), Some(Path::new("/c")));
        assert_eq!(membership.v1("freezer"), None);
        assert_eq!(membership.v1("name=systemd"), None);
        assert_eq!(membership.v1(""), None);
        assert_eq!(membership.v2(), Some(Path::new("/u")));
        assert_eq!(membership.v1_controllers().count(), 3);
        assert_eq!(membership.deepest(), Some(Path::new("/k8s/pod:1/c1")));
    }

    #[test]
    fn a_name_need_not_be_utf_8() {
        let membership = Membership::parse(b"6:freezer:/a\xff\xfe\n0::/\xe4\n").unwrap();
        let freezer = membership.v1("freezer").unwrap();
        assert_eq!(freezer.as_os_str().as_bytes(), b"/a\xff\xfe");
        assert_eq!(membership.v2().unwrap().as_os_str().as_bytes(), b"/\xe4");
    }

    #[test]
    fn what_the_kernel_does_not_write_is_refused() {
        assert_eq!(Membership::parse(b"memory\n"), None);
        assert_eq!(Membership::parse(b"4:memory\n"), None);
        assert_eq!(Membership::of(i32::MAX).unwrap(), None);
    }
}
