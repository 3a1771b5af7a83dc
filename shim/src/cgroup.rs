//! Where the cgroup of a container is, on cgroup v1, v2 and both at once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use containerd_shim_protos::protobuf;
use containerd_shim_protos::protobuf::well_known_types::any::Any;

pub(crate) use self::mounts::unescape;
use self::mounts::{Mount, mounts};
use crate::stats;

mod mounts;
#[cfg(test)]
mod tests;

/// A host is taken for a v1 host when one of these is a v1 hierarchy: they carry the limits of a
/// container. Hybrid hosts have a v2 hierarchy besides, without controllers, for systemd.
const DECIDING: [&str; 3] = ["memory", "cpu", "pids"];

/// The cgroup of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cgroup {
    /// One directory per controller.
    V1(BTreeMap<String, PathBuf>),
    /// The directory in the unified hierarchy.
    V2(PathBuf),
}

/// Why a cgroup could not be found or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file holds something other than the kernel documents.
    #[error("cannot understand {path}: {content:?}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The line or word that was not understood.
        content: String,
    },
    /// The process is in a cgroup that no mount shows to this process.
    #[error("no mount shows the cgroup {path}")]
    NotVisible {
        /// The path within its hierarchy, as `/proc/<pid>/cgroup` has it.
        path: String,
    },
    /// The process is in no hierarchy that accounts for resources.
    #[error("process {pid} is in no cgroup")]
    None {
        /// The process.
        pid: u32,
    },
    /// The cgroup was removed.
    #[error("the cgroup {path} is gone")]
    Gone {
        /// Where it was; on v1, one of its directories.
        path: PathBuf,
    },
    /// The metrics could not be serialized.
    #[error("cannot encode the metrics")]
    Encode(#[source] protobuf::Error),
}

impl Cgroup {
    /// The cgroup that a process is in now. A container's init may move itself into a sub-cgroup
    /// (an init system does), so ask before it runs.
    ///
    /// # Errors
    ///
    /// The process does not exist, or this process cannot see its cgroup.
    pub(crate) fn of_process(pid: u32) -> Result<Self, CgroupError> {
        let membership = read_proc(format!("/proc/{pid}/cgroup").into())?;
        let mounts = mounts(&read_proc("/proc/self/mountinfo".into())?);
        Self::locate(pid, &membership, &mounts)
    }

    fn locate(pid: u32, membership: &str, mounts: &[Mount]) -> Result<Self, CgroupError> {
        let mut v1 = BTreeMap::new();
        let mut v1_path = None;
        let mut v2_path = None;
        for line in membership.lines() {
            let Some((controllers, path)) = parse_membership(line) else {
                return Err(CgroupError::Content {
                    path: format!("/proc/{pid}/cgroup").into(),
                    content: line.to_owned(),
                });
            };
            if controllers.is_empty() {
                v2_path = Some(path);
            }
            // A hierarchy with a name ("name=systemd") has no controllers.
            let controllers = controllers.split(',').filter(|name| !name.contains('='));
            for controller in controllers.filter(|name| !name.is_empty()) {
                if DECIDING.contains(&controller) {
                    v1_path = Some(path);
                }
                if let Some(directory) = mounts.iter().find_map(|m| m.show(controller, path)) {
                    v1.insert(controller.to_owned(), directory);
                }
            }
        }
        let not_visible = |path: &str| CgroupError::NotVisible {
            path: path.to_owned(),
        };
        match (v1_path, v2_path) {
            (Some(_), _) if DECIDING.iter().any(|name| v1.contains_key(*name)) => Ok(Self::V1(v1)),
            // Not v2 then: its files would say that the container uses nothing.
            (Some(path), _)
                if mounts
                    .iter()
                    .any(|mount| DECIDING.iter().any(|name| mount.has(name))) =>
            {
                Err(not_visible(path))
            }
            // Version 1 may be there and not be mounted here, as where only version 2 is wanted.
            (_, Some(path)) => mounts
                .iter()
                .find_map(|mount| mount.show_v2(path))
                .map(Self::V2)
                .ok_or_else(|| not_visible(path)),
            (_, None) => Err(CgroupError::None { pid }),
        }
    }

    /// The directory with the files of a controller. On v2 it is the same for every controller,
    /// enabled or not.
    #[must_use]
    pub(crate) fn path_of(&self, controller: &str) -> Option<&Path> {
        match self {
            Self::V1(directories) => directories.get(controller).map(PathBuf::as_path),
            Self::V2(directory) => Some(directory),
        }
    }

    /// What the container uses, as a shim answers `Stats`: `io.containerd.cgroups.v1.Metrics` or
    /// `io.containerd.cgroups.v2.Metrics`.
    ///
    /// # Errors
    ///
    /// The cgroup is gone, or a file could not be read or understood. A file that is not there
    /// is no error: its controller is not enabled, or the kernel does not have it yet.
    pub(crate) fn metrics(&self) -> Result<Any, CgroupError> {
        if let Some(path) = self.gone() {
            return Err(CgroupError::Gone {
                path: path.to_owned(),
            });
        }
        match self {
            Self::V1(directories) => {
                let metrics = stats::v1::metrics(directories, Path::new("/proc/partitions"))?;
                pack(stats::v1::TYPE, &metrics)
            }
            Self::V2(directory) => pack(stats::v2::TYPE, &stats::v2::metrics(directory)?),
        }
    }

    /// A directory of a cgroup that has none left. On v1 each hierarchy is removed on its own.
    fn gone(&self) -> Option<&Path> {
        match self {
            Self::V1(directories) => {
                let all_gone = directories.values().all(|directory| !directory.exists());
                let any = directories.values().next().map(PathBuf::as_path);
                any.filter(|_| all_gone)
            }
            Self::V2(directory) => (!directory.exists()).then_some(directory),
        }
    }
}

/// Where the cgroup `path` is seen in each hierarchy, whether it is there or not.
///
/// # Errors
///
/// The mounts cannot be read.
pub(crate) fn directories_of(path: &str) -> Result<Vec<PathBuf>, CgroupError> {
    let mounts = mounts(&read_proc("/proc/self/mountinfo".into())?);
    Ok(mounts.iter().filter_map(|m| m.below_point(path)).collect())
}

/// `(controllers, path)` of a line "id:controllers:path" (cgroups(7)). The path may hold colons.
fn parse_membership(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    rest.split_once(':')
}

/// containerd's typeurl finds the Go type by the bare name of the message; `Any::pack` would put
/// "type.googleapis.com/" before it.
fn pack(name: &str, metrics: &impl protobuf::Message) -> Result<Any, CgroupError> {
    Ok(Any {
        type_url: name.to_owned(),
        value: metrics.write_to_bytes().map_err(CgroupError::Encode)?,
        ..Any::default()
    })
}

/// Some other mount may have a name that is not UTF-8; the lines that matter here are.
fn read_proc(path: PathBuf) -> Result<String, CgroupError> {
    match fs::read(&path) {
        Ok(content) => Ok(String::from_utf8_lossy(&content).into_owned()),
        Err(source) => Err(CgroupError::Read { path, source }),
    }
}
