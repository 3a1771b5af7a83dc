//! The mounts of cgroup hierarchies, and which cgroups they show.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// One mount of a cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Which cgroup is seen at `point`; "/" unless a container runtime mounted only a part.
    root: PathBuf,
    point: PathBuf,
    /// The controllers of a v1 hierarchy; `None` for v2.
    controllers: Option<Vec<String>>,
}

/// The cgroup mounts in the text of `/proc/self/mountinfo`.
pub(super) fn mounts(mountinfo: &str) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for mount in mountinfo.lines().filter_map(parse) {
        // Of two mounts on one directory the later one is seen.
        all.retain(|earlier| earlier.point != mount.point);
        all.push(mount);
    }
    all
}

/// A line of proc_pid_mountinfo(5):
/// "36 35 98:0 /root /point rw,noatime master:1 - type source super,options".
fn parse(line: &str) -> Option<Mount> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (mount.next()?, mount.next()?);
    let mut filesystem = filesystem.split(' ');
    let controllers = match filesystem.next()? {
        "cgroup" => {
            let options = filesystem.nth(1)?;
            Some(options.split(',').map(str::to_owned).collect())
        }
        "cgroup2" => None,
        _ => return None,
    };
    Some(Mount {
        root: unescape(root),
        point: unescape(point),
        controllers,
    })
}

impl Mount {
    /// Where the cgroup `path` of the v1 hierarchy of `controller` is seen.
    pub(super) fn show(&self, controller: &str, path: &str) -> Option<PathBuf> {
        if !self.has(controller) {
            return None;
        }
        self.below_point(path)
    }

    /// Whether it is of the v1 hierarchy of `controller`.
    pub(super) fn has(&self, controller: &str) -> bool {
        let controllers = self.controllers.iter().flatten();
        controllers.into_iter().any(|name| name == controller)
    }

    /// Where the cgroup `path` of the unified hierarchy is seen.
    pub(super) fn show_v2(&self, path: &str) -> Option<PathBuf> {
        match self.controllers {
            None => self.below_point(path),
            Some(_) => None,
        }
    }

    /// Both `path` and the root are given relative to the cgroup namespace of this process, and
    /// start with "/.." when they are outside of it (cgroup_namespaces(7)).
    pub(super) fn below_point(&self, path: &str) -> Option<PathBuf> {
        let inside = Path::new(path).strip_prefix(&self.root).ok()?;
        if inside.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        if inside.as_os_str().is_empty() {
            // Joining would leave a "/" at the end, for people to stumble over in messages.
            return Some(self.point.clone());
        }
        Some(self.point.join(inside))
    }
}

/// The kernel writes space, tab, newline and backslash as "\040" and so on, three octal digits.
pub(crate) fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() {
            &after[3..]
        } else {
            after
        };
    }
    OsString::from_vec(bytes).into()
}
