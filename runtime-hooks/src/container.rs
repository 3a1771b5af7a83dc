//! A container as the low-level runtime records it: its init process and its cgroup.
//!
//! runc and crun keep a JSON file per container below `--root`. It is read directly: `runc state`
//! would cost a process start and does not tell the cgroup, and `/proc/PID/cgroup` of the init
//! process names a sub-cgroup when the container has divided its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use stasis_config::Flavor;

use crate::cgroup::Cgroup;
use crate::memory_limit::MemoryCgroup;
use crate::process::ProcessRef;

/// runc's state holds the whole container configuration; 16 MiB is far above any real one.
const MAX_STATE_BYTES: u64 = 16 << 20;

/// A container that the low-level runtime knows.
#[derive(Debug)]
pub struct Container {
    id: String,
    init: ProcessRef,
    cgroup: Cgroup,
    memory: MemoryCgroup,
}

/// Why a container cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The low-level runtime has no such container.
    #[error("no such container: {path} does not exist")]
    NotFound {
        /// The state file that was looked for.
        path: PathBuf,
    },
    /// The state file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The state file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The state file is not what runc 1.x or crun 1.x write.
    #[error("cannot make sense of {path}: {what}")]
    Malformed {
        /// The state file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The container is not running.
    #[error("the container's init process {pid} has ended")]
    Stopped {
        /// The pid that the low-level runtime recorded.
        pid: i32,
    },
    /// `/proc` or the cgroup could not be read.
    #[error("cannot look at the container's processes")]
    Processes(#[from] io::Error),
}

/// The part of runc's `state.json` (libcontainer `State`) that is used.
#[derive(Deserialize)]
struct RuncState {
    init_process_pid: i32,
    init_process_start: u64,
    cgroup_paths: BTreeMap<String, PathBuf>,
}

/// The part of crun's `status` (libcrun `libcrun_container_status_t`) that is used.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CrunStatus {
    pid: i32,
    process_start_time: u64,
    cgroup_path: String,
}

impl Container {
    /// Looks a running container up below the low-level runtime's `root`.
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
        })
    }

    /// The container's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its init process.
    #[must_use]
    pub fn init(&self) -> &ProcessRef {
        &self.init
    }

    /// Its cgroup.
    #[must_use]
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Its memory cgroup.
    #[must_use]
    pub fn memory(&self) -> &MemoryCgroup {
        &self.memory
    }

    /// Takes hold of all its processes, those in sub-cgroups included, in order of pid.
    ///
    /// # Errors
    /// What the kernel said; processes that end meanwhile are left out.
    pub fn processes(&self) -> io::Result<Vec<ProcessRef>> {
        let opened = self.cgroup.pids()?.into_iter().map(ProcessRef::open);
        opened.filter_map(Result::transpose).collect()
    }

    /// Whether it has been given a GPU: a device node of NVIDIA's is in its `/dev`.
    #[must_use]
    pub fn has_nvidia_node(&self) -> bool {
        let entries = fs::read_dir(format!("/proc/{}/root/dev", self.init.pid()));
        let mut names = entries.into_iter().flatten().flatten();
        names.any(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"))
    }

    /// The pid of one of its processes in the container's own pid namespace.
    #[must_use]
    pub fn pid_inside(&self, process: &ProcessRef) -> Option<i32> {
        process.pid_at_depth(self.init.namespace_depth())
    }
}

/// What the low-level runtime has recorded of a container.
struct Recorded {
    pid: i32,
    start_time: u64,
    cgroup: Cgroup,
    memory: MemoryCgroup,
}

fn read_runc(path: &Path) -> Result<Recorded, ContainerError> {
    let state: RuncState = read_json(path)?;
    let directory = |controller: &str| state.cgroup_paths.get(controller).cloned();
    let (cgroup, memory) = match (directory("freezer"), directory("")) {
        // Without a memory controller there is no such directory, and so no limit in it.
        (Some(freezer), _) => {
            let memory = directory("memory").unwrap_or_else(|| freezer.clone());
            (Cgroup::v1(freezer), MemoryCgroup::v1(memory))
        }
        (None, Some(unified)) => (Cgroup::v2(unified.clone()), MemoryCgroup::v2(unified)),
        (None, None) => return Err(malformed(path, "it names no freezer and no unified cgroup")),
    };
    Ok(Recorded {
        pid: state.init_process_pid,
        start_time: state.init_process_start,
        cgroup,
        memory,
    })
}

fn read_crun(path: &Path) -> Result<Recorded, ContainerError> {
    let status: CrunStatus = read_json(path)?;
    let relative = status.cgroup_path.trim_start_matches('/');
    if relative.is_empty() {
        return Err(malformed(path, "the container has no cgroup of its own"));
    }
    let mount = Path::new("/sys/fs/cgroup");
    // As crun tells the versions apart: only a unified hierarchy has this file at the mount.
    let cgroup = if mount.join("cgroup.controllers").exists() {
        Cgroup::v2(mount.join(relative))
    } else {
        Cgroup::v1(mount.join("freezer").join(relative))
    };
    Ok(Recorded {
        pid: status.pid,
        start_time: status.process_start_time,
        cgroup,
        memory: MemoryCgroup::below_mount(Path::new(relative)),
    })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ContainerError> {
    let file = fs::File::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ContainerError::NotFound {
            path: path.to_owned(),
        },
        _ => ContainerError::Read {
            path: path.to_owned(),
            source,
        },
    })?;
    let mut text = String::new();
    file.take(MAX_STATE_BYTES)
        .read_to_string(&mut text)
        .map_err(|source| ContainerError::Read {
            path: path.to_owned(),
            source,
        })?;
    serde_json::from_str(&text).map_err(|error| malformed(path, error.to_string()))
}

fn malformed(path: &Path, what: impl Into<String>) -> ContainerError {
    ContainerError::Malformed {
        path: path.to_owned(),
        what: what.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ProcessRef {
        ProcessRef::open(i32::try_from(std::process::id()).unwrap())
            .unwrap()
            .unwrap()
    }

    fn root_with(file: &str, text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("c1");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(file), text).unwrap();
        root
    }

    #[test]
    fn runc_on_cgroup_v1_gives_the_freezer_directory() {
        let text = format!(
            r#"{{"id":"c1","init_process_pid":{},"init_process_start":{},
                "cgroup_paths":{{"freezer":"/f/c1","memory":"/m/c1"}},"config":{{}}}}"#,
            own().pid(),
            own().start_time()
        );
        let root = root_with("state.json", &text);
        let container = Container::load(Flavor::Runc, root.path(), "c1").unwrap();
        assert_eq!(container.cgroup().directory(), Path::new("/f/c1"));
        assert_eq!(
            container.pid_inside(&own()),
            own().pid_at_depth(own().namespace_depth())
        );
    }

    #[test]
    fn a_reused_pid_is_a_stopped_container() {
        let text = format!(
            r#"{{"init_process_pid":{},"init_process_start":1,"cgroup_paths":{{"":"/u/c1"}}}}"#,
            own().pid()
        );
        let root = root_with("state.json", &text);
        let error = Container::load(Flavor::Runc, root.path(), "c1").unwrap_err();
        assert!(matches!(error, ContainerError::Stopped { .. }), "{error}");
    }

    #[test]
    fn crun_names_a_cgroup_below_the_mount() {
        let text = format!(
            r#"{{"pid":{},"process-start-time":{},"cgroup-path":"/machine/c1","scope":null}}"#,
            own().pid(),
            own().start_time()
        );
        let root = root_with("status", &text);
        let container = Container::load(Flavor::Crun, root.path(), "c1").unwrap();
        assert!(container.cgroup().directory().ends_with("machine/c1"));
    }

    #[test]
    fn a_missing_and_a_malformed_state_are_told_apart() {
        let root = root_with("state.json", "{");
        let missing = Container::load(Flavor::Runc, root.path(), "c2").unwrap_err();
        assert!(
            matches!(missing, ContainerError::NotFound { .. }),
            "{missing}"
        );
        let malformed = Container::load(Flavor::Runc, root.path(), "c1").unwrap_err();
        assert!(
            matches!(malformed, ContainerError::Malformed { .. }),
            "{malformed}"
        );
    }
}
