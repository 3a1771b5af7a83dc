//! Where the cgroup hierarchies are mounted, and which cgroups can be seen through the mounts.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::{Cgroup, Membership};
use crate::mountinfo::{self, Mount};

/// The cgroup hierarchies that this process can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    mounts: Vec<HierarchyMount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HierarchyMount {
    /// The cgroup that is at `point`; "/" unless a container runtime mounted only a part.
    root: PathBuf,
    point: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// The options: among them the names of the controllers.
    V1(Vec<Vec<u8>>),
    V2,
}

impl Hierarchies {
    /// Reads the hierarchies that are mounted now.
    pub fn read() -> io::Result<Self> {
        Ok(Self::among(&mountinfo::mounts()?))
    }

    /// Finds the hierarchies among these mounts, without the mounts that other mounts hide.
    #[must_use]
    pub fn among(mounts: &[Mount]) -> Self {
        let hierarchy = |mount: &Mount| {
            let kind = match &*mount.kind {
                b"cgroup" => {
                    let options = mount.options.split(|byte| *byte == b',');
                    Kind::V1(options.map(<[u8]>::to_vec).collect())
                }
                b"cgroup2" => Kind::V2,
                _ => return None,
            };
            is_visible(mount, mounts).then(|| HierarchyMount {
                root: mount.root.clone(),
                point: mount.point.clone(),
                kind,
            })
        };
        let mounts = mounts.iter().filter_map(hierarchy).collect();
        Self { mounts }
    }

    /// Whether a controller of version 1 is mounted.
    pub fn has_v1(&self, controller: &str) -> bool {
        self.mounts.iter().any(|mount| mount.has_v1(controller))
    }

    /// The directory of the cgroup `path` in the version 1 hierarchy of a controller.
    pub fn v1(&self, controller: &str, path: &Path) -> Option<PathBuf> {
        let mut mounts = self.mounts.iter();
        mounts.find_map(|mount| mount.has_v1(controller).then(|| mount.show(path))?)
    }

    /// The directory of the cgroup `path` in the unified hierarchy.
    pub fn v2(&self, path: &Path) -> Option<PathBuf> {
        let mut mounts = self.mounts.iter();
        mounts.find_map(|mount| (mount.kind == Kind::V2).then(|| mount.show(path))?)
    }

    /// The directory of the cgroup `path` in every hierarchy, whether it exists or not.
    pub fn everywhere(&self, path: &Path) -> Vec<PathBuf> {
        let shown = self.mounts.iter().filter_map(|mount| mount.show(path));
        shown.collect()
    }

    /// The cgroup `path` in the hierarchy that has a controller: that of version 1 if it is
    /// mounted, since a controller is in one hierarchy only, else the unified one.
    pub fn cgroup(&self, controller: &str, path: &Path) -> Option<Cgroup> {
        if self.has_v1(controller) {
            self.v1(controller, path).map(Cgroup::v1)
        } else {
            self.v2(path).map(Cgroup::v2)
        }
    }

    /// The cgroup of a process in the hierarchy that has a controller. `/proc/PID/cgroup` also
    /// lists hierarchies of version 1 that are not mounted.
    pub fn cgroup_of(&self, membership: &Membership, controller: &str) -> Option<Cgroup> {
        let path = if self.has_v1(controller) {
            membership.v1(controller)
        } else {
            membership.v2()
        };
        self.cgroup(controller, path?)
    }

    pub(crate) fn freezers_of(&self, membership: &Membership) -> Vec<Cgroup> {
        let v1 = membership.v1("freezer");
        let v1 = v1.and_then(|path| self.v1("freezer", path)).map(Cgroup::v1);
        let v2 = membership.v2().and_then(|path| self.v2(path));
        v1.into_iter().chain(v2.map(Cgroup::v2)).collect()
    }
}

impl HierarchyMount {
    fn has_v1(&self, controller: &str) -> bool {
        match &self.kind {
            Kind::V1(options) => options.iter().any(|name| name == controller.as_bytes()),
            Kind::V2 => false,
        }
    }

    /// The directory of the cgroup `path`, if it is below the root of this mount. Both are given
    /// relative to the cgroup namespace of this process, and start with "/.." when they are
    /// outside of it (cgroup_namespaces(7)).
    fn show(&self, path: &Path) -> Option<PathBuf> {
        let inside = path.strip_prefix(&self.root).ok()?;
        if inside.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        if inside.as_os_str().is_empty() {
            // `join` would leave a "/" at the end, which would look wrong in messages.
            return Some(self.point.clone());
        }
        Some(self.point.join(inside))
    }
}

/// Whether a path below the point of a mount leads into it. It does not if another mount is on
/// top of it, or, for it or a mount that it is in, if another mount is on the way.
fn is_visible(mount: &Mount, all: &[Mount]) -> bool {
    let covered = |other: &Mount| other.parent == mount.id && other.point == mount.point;
    if all.iter().any(covered) {
        return false;
    }
    let mut at = mount;
    // A table that was read while mounts changed may have a loop: climb no further than its length.
    for _ in 0..all.len() {
        let on_the_way = |other: &Mount| {
            other.parent == at.parent && other.id != at.id && at.point.starts_with(&other.point)
        };
        if all.iter().any(on_the_way) {
            return false;
        }
        match all.iter().find(|other| other.id == at.parent) {
            Some(parent) if parent.id != at.id => at = parent,
            _ => break,
        }
    }
    true
}

#[cfg(test)]
mod tests;
