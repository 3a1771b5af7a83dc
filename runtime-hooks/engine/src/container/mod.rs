//! A container as the low-level runtime records it: its init process and its cgroup.
//!
//! runc and crun keep a JSON file per container below `--root`. stasis reads the file: `runc state`
//! costs a process start and does not print the cgroup, and `/proc/PID/cgroup` of the init process
//! names a sub-cgroup if the container has made some.

pub mod create;
pub mod criu_configuration;
pub mod hooks;
pub mod host_memory;
pub(crate) mod inherited_devices;
pub(crate) mod inside;
pub mod memory_limit;
pub mod mounted;
pub(crate) mod restored_cgroup;
pub(crate) mod root_mounts;
pub mod spec;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use stasis_config::Flavor;
use stasis_host::deadline::{PROC, within};
use stasis_linux::cgroup::{Cgroup, Hierarchies};
use stasis_linux::{ProcessRef, Snapshot, file};

use crate::container::memory_limit::MemoryCgroup;
use crate::container::spec::Spec;

/// runc's state holds the whole container configuration; 16 MiB is far above any real one.
const MAX_STATE_BYTES: u64 = 16 << 20;

/// A running container of the low-level runtime.
#[derive(Debug)]
pub struct Container {
    id: String,
    init: ProcessRef,
    cgroup: Cgroup,
    memory: MemoryCgroup,
    bundle: Option<PathBuf>,
}

/// An error of reading a container's state.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ContainerError {
    #[error("no such container: {path} does not exist")]
    NotFound { path: PathBuf },
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot make sense of {path}: {what}")]
    Malformed { path: PathBuf, what: String },
    #[error("no cgroup hierarchy that is mounted here has the container's cgroup {path}")]
    NotVisible { path: PathBuf },
    #[error("the container's init process {pid} has ended")]
    Stopped { pid: i32 },
    #[error("cannot read the container's processes")]
    Processes(#[from] io::Error),
}

/// The part of runc's `state.json` (libcontainer `State`) that is used.
#[derive(Deserialize)]
struct RuncState {
    init_process_pid: i32,
    init_process_start: u64,
    cgroup_paths: BTreeMap<String, PathBuf>,
    #[serde(default)]
    config: RuncConfig,
}

#[derive(Default, Deserialize)]
struct RuncConfig {
    /// The annotations and the bundle as "NAME=VALUE" (libcontainer `specconv`).
    #[serde(default)]
    labels: Vec<String>,
}

/// The part of crun's `status` (libcrun `libcrun_container_status_t`) that is used.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CrunStatus {
    pid: i32,
    process_start_time: u64,
    cgroup_path: String,
    bundle: Option<PathBuf>,
}

impl Container {
    /// Loads a running container from the low-level runtime's `root`.
    ///
    /// # Errors
    /// [`ContainerError`]; a container that exists but does not run is
    /// [`ContainerError::Stopped`].
    pub fn load(flavor: Flavor, root: &Path, id: &str) -> Result<Self, ContainerError> {
        let Recorded {
            pid,
            start_time,
            cgroup,
            memory,
            bundle,
        } = match flavor {
            Flavor::Runc => read_runc(&root.join(id).join("state.json"))?,
            Flavor::Crun => read_crun(&root.join(id).join("status"))?,
        };
        let init = ProcessRef::open(pid)?.ok_or(ContainerError::Stopped { pid })?;
        if init.start_time() != start_time {
            return Err(ContainerError::Stopped { pid });
        }
        Ok(Self {
            id: id.to_owned(),
            init,
            cgroup,
            memory,
            bundle,
        })
    }

    /// The container's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its init process.
    pub fn init(&self) -> &ProcessRef {
        &self.init
    }

    /// Its cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Its memory cgroup.
    pub fn memory(&self) -> &MemoryCgroup {
        &self.memory
    }

    /// Its memory cgroup with the sub-cgroups that these of its processes are in.
    pub fn memory_of<'p>(
        &self,
        processes: impl IntoIterator<Item = &'p ProcessRef>,
    ) -> Result<MemoryCgroup, ContainerError> {
        Ok(self.memory.with_those_of(processes)?)
    }

    /// Its bundle, if that is known.
    pub fn bundle(&self) -> Option<&Path> {
        self.bundle.as_deref()
    }

    /// Its specification; `None` if its bundle is not known or cannot be read.
    pub fn spec(&self) -> Option<Spec> {
        Spec::read(self.bundle()?).ok()
    }

    /// Takes a snapshot of its processes, those in sub-cgroups included. Skips processes that end
    /// meanwhile.
    ///
    /// # Errors
    /// An error of reading the cgroup or `/proc`; [`io::ErrorKind::TimedOut`] if that hangs.
    pub fn snapshot(&self) -> io::Result<Snapshot> {
        let (init, cgroup) = (self.init.clone(), self.cgroup.clone());
        within(PROC, move || Snapshot::take(&init, &cgroup.pids()?))?
    }

    /// Whether it has a GPU: its `/dev` has an NVIDIA device node. One whose `/dev` does not answer
    /// counts as having one, since nothing of a GPU may be left out.
    pub(crate) fn has_nvidia_node(&self) -> bool {
        let init = self.init.clone();
        let names = within(PROC, move || {
            inside::names_in(inside::root_of(&init)?, Path::new("dev"))
        });
        let Ok(names) = names else { return true };
        let mut names = names.unwrap_or_default().into_iter();
        names.any(|name| name.as_bytes().starts_with(b"nvidia"))
    }

    /// The pid of one of its processes in the container's own pid namespace.
    pub fn pid_inside(&self, process: &ProcessRef) -> Option<i32> {
        process.pid_at_depth(self.init.namespace_depth())
    }
}

/// A container's state file, of runc or crun.
struct Recorded {
    pid: i32,
    start_time: u64,
    cgroup: Cgroup,
    memory: MemoryCgroup,
    bundle: Option<PathBuf>,
}

fn read_runc(path: &Path) -> Result<Recorded, ContainerError> {
    let state: RuncState = read_json(path)?;
    let directory = |controller: &str| state.cgroup_paths.get(controller).cloned();
    let (cgroup, memory) = match (directory("freezer"), directory("")) {
        // Without a memory controller there is no such directory, and so no limit in it.
        (Some(freezer), _) => {
            let memory = directory("memory").unwrap_or_else(|| freezer.clone());
            (Cgroup::v1(freezer), Cgroup::v1(memory))
        }
        (None, Some(unified)) => (Cgroup::v2(unified.clone()), Cgroup::v2(unified)),
        (None, None) => return Err(malformed(path, "it names no freezer and no unified cgroup")),
    };
    let mut labels = state.config.labels.iter().rev();
    let bundle = labels.find_map(|label| label.strip_prefix("bundle="));
    Ok(Recorded {
        pid: state.init_process_pid,
        start_time: state.init_process_start,
        cgroup,
        memory: MemoryCgroup::new(memory),
        bundle: bundle.map(PathBuf::from),
    })
}

fn read_crun(path: &Path) -> Result<Recorded, ContainerError> {
    let status: CrunStatus = read_json(path)?;
    let relative = status.cgroup_path.trim_start_matches('/');
    if relative.is_empty() {
        return Err(malformed(path, "the container has no cgroup of its own"));
    }
    let hierarchies = Hierarchies::read()?;
    let cgroup_path = Path::new("/").join(relative);
    let cgroup = hierarchies.cgroup("freezer", &cgroup_path);
    let cgroup = cgroup.ok_or_else(|| ContainerError::NotVisible {
        path: cgroup_path.clone(),
    })?;
    let memory = hierarchies.cgroup("memory", &cgroup_path);
    Ok(Recorded {
        pid: status.pid,
        start_time: status.process_start_time,
        memory: MemoryCgroup::new(memory.unwrap_or_else(|| cgroup.clone())),
        cgroup,
        bundle: status.bundle,
    })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ContainerError> {
    let text = file::read(path, MAX_STATE_BYTES).map_err(|source| ContainerError::Read {
        path: path.to_owned(),
        source,
    })?;
    let text = text.ok_or_else(|| ContainerError::NotFound {
        path: path.to_owned(),
    })?;
    serde_json::from_slice(&text).map_err(|error| malformed(path, error.to_string()))
}

fn malformed(path: &Path, what: impl Into<String>) -> ContainerError {
    ContainerError::Malformed {
        path: path.to_owned(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests;
