//! The cgroup of a container: where it is on cgroup v1, v2 and both at once, what it has counted
//! (`stats`), when it runs out of memory (`oom`), and which is a container's own ([`own`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use containerd_shim_protos::protobuf;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use stasis_linux::cgroup::{Everywhere, Hierarchies, Membership, cgroups_path};

use crate::error::{Error, Result};

pub(crate) mod controllers;
pub(crate) mod oom;
pub(crate) mod stats;
#[cfg(test)]
mod tests;

/// A host is a v1 host if one of these controllers has a v1 hierarchy: they have the limits of a
/// container. Hybrid hosts also have a v2 hierarchy without controllers, for systemd.
const DECIDING: [&str; 3] = ["memory", "cpu", "pids"];

const HIERARCHIES: &str = "find the cgroup hierarchies";

/// Finds a container's cgroup from `linux.cgroupsPath` of the specification. One whose name does
/// not contain the container's id may be shared with other containers, and is left alone.
pub(crate) fn own(cgroups_path: Option<&Path>, id: &str) -> Result<Everywhere> {
    match own_path(cgroups_path, id) {
        Some(path) => Everywhere::at(&path).map_err(Error::cannot(HIERARCHIES)),
        None => Ok(Everywhere::default()),
    }
}

/// A relative path depends on the cgroup of the runtime's caller; containerd's callers give none.
fn own_path(path: Option<&Path>, id: &str) -> Option<PathBuf> {
    let path = cgroups_path(path?.to_str()?)?;
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().contains(id).then_some(path)
}

/// The cgroup of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cgroup {
    /// One directory per controller.
    V1(BTreeMap<String, PathBuf>),
    /// The directory in the unified hierarchy.
    V2(PathBuf),
}

impl Cgroup {
    /// The cgroup that a process is in now. Ask before a container's init process runs: an init
    /// system moves itself into a sub-cgroup.
    pub(crate) fn of_process(pid: u32) -> Result<Self> {
        let membership = Membership::of(pid.cast_signed())
            .map_err(Error::cannot("read the cgroups of the process"))?;
        let membership =
            membership.ok_or_else(|| Error::Other(format!("process {pid} has ended")))?;
        let hierarchies = Hierarchies::read().map_err(Error::cannot(HIERARCHIES))?;
        Self::locate(pid, &membership, &hierarchies)
    }

    fn locate(pid: u32, membership: &Membership, hierarchies: &Hierarchies) -> Result<Self> {
        let not_visible =
            |path: &Path| Error::Other(format!("no mount shows the cgroup {}", path.display()));
        // /proc lists the v1 hierarchies also where only v2 is mounted. Where one is mounted, but
        // does not show the cgroup, do not take the v2 hierarchy: it would count nothing.
        let mounted = |name: &&str| membership.v1(name).is_some() && hierarchies.has_v1(name);
        if DECIDING.iter().any(mounted) {
            let v1 = directories_v1(membership, hierarchies);
            if DECIDING.iter().any(|name| v1.contains_key(*name)) {
                return Ok(Self::V1(v1));
            }
            let path = DECIDING.iter().find_map(|name| membership.v1(name));
            return Err(not_visible(path.unwrap_or(Path::new("/"))));
        }
        let none = || Error::Other(format!("process {pid} is in no cgroup"));
        let path = membership.v2().ok_or_else(none)?;
        let directory = hierarchies.v2(path).ok_or_else(|| not_visible(path))?;
        Ok(Self::V2(directory))
    }

    /// The directory with the files of a controller. On v2 it is the same for every controller,
    /// enabled or not.
    pub(crate) fn path_of(&self, controller: &str) -> Option<&Path> {
        match self {
            Self::V1(directories) => directories.get(controller).map(PathBuf::as_path),
            Self::V2(directory) => Some(directory),
        }
    }

    /// The container's usage in the form of the `Stats` response:
    /// `io.containerd.cgroups.v1.Metrics` or `io.containerd.cgroups.v2.Metrics`; `None` if the
    /// cgroup is gone. On v1 each hierarchy is removed on its own.
    pub(crate) fn metrics(&self) -> Result<Option<Any>> {
        let packed = match self {
            Self::V1(directories) if directories.values().any(|directory| directory.exists()) => {
                let metrics = stats::v1::metrics(directories, Path::new("/proc/partitions"));
                pack(stats::v1::TYPE, &metrics)
            }
            Self::V2(directory) if directory.exists() => {
                pack(stats::v2::TYPE, &stats::v2::metrics(directory))
            }
            Self::V1(_) | Self::V2(_) => return Ok(None),
        };
        packed.map(Some)
    }
}

/// Where the controllers of version 1 have the cgroup.
fn directories_v1(membership: &Membership, hierarchies: &Hierarchies) -> BTreeMap<String, PathBuf> {
    let named = membership.v1_controllers().filter_map(|(name, path)| {
        let name = str::from_utf8(name).ok()?;
        Some((name.to_owned(), hierarchies.v1(name, path)?))
    });
    named.collect()
}

/// containerd's typeurl finds the Go type by the bare name of the message; `Any::pack` would put
/// "type.googleapis.com/" before it.
fn pack(name: &str, metrics: &impl protobuf::Message) -> Result<Any> {
    Ok(Any {
        type_url: name.to_owned(),
        value: metrics.write_to_bytes()?,
        ..Any::default()
    })
}
