//! Why a cgroup could not be found or read.

use std::io;
use std::path::PathBuf;

use containerd_shim_protos::protobuf;

/// Why a cgroup could not be found or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system call's error.
        #[source]
        source: io::Error,
    },
    /// The cgroups of a process could not be read.
    #[error("cannot read the cgroups of the process")]
    Membership(#[source] io::Error),
    /// The mounts of the cgroup hierarchies could not be read.
    #[error("cannot find the cgroup hierarchies")]
    Mounts(#[source] io::Error),
    /// A file has a line that the kernel's documentation does not know.
    #[error("cannot understand {path}: {content:?}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The line or word that was not understood.
        content: String,
    },
    /// No mount of the shim's mount namespace shows the cgroup.
    #[error("no mount shows the cgroup {path}")]
    NotVisible {
        /// The path within its hierarchy, as `/proc/<pid>/cgroup` has it.
        path: PathBuf,
    },
    /// The process has ended.
    #[error("process {pid} has ended")]
    Ended {
        /// The process.
        pid: u32,
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
        /// Its directory; on v1, one of them.
        path: PathBuf,
    },
    /// The metrics could not be serialized.
    #[error("cannot encode the metrics")]
    Encode(#[source] protobuf::Error),
}
