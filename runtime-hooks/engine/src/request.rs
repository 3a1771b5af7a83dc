//! A caller's request as plain data, so that no operation depends on the command line.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_linux::cgroup::FreezerState;

/// Whether the container ends after a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterDump {
    /// The container ends.
    Exit,
    /// The container continues.
    LeaveRunning,
}

/// When the processes of a successful dump resume, and need their GPU contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumes {
    /// With the end of the dump.
    AtOnce,
    /// They end; or they wait until the caller, which has paused the container, resumes it, or for
    /// other containers. No process of a frozen container can map anything, nor may run before.
    Later,
}

/// Whether only memory is dumped, in advance of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreDump {
    /// A whole checkpoint.
    No,
    /// `--pre-dump`
    Only,
}

stasis_config::words! {
    /// Objects that CRIU dumps only on request, by the name of the option, which is the same in
    /// CRIU, runc and crun, and engines.
    CriuOption {
        /// TCP connections.
        TcpEstablished = "tcp-established",
        /// Listening sockets with connections that are not accepted yet: these are left out.
        TcpSkipInFlight = "tcp-skip-in-flight",
        /// Datagram sockets that are connected to others outside, which are found by name.
        ExtUnixSk = "ext-unix-sk",
        /// Files that have lost the name they were opened by, but have another: they get a third.
        LinkRemap = "link-remap",
    }
}

/// Where a dump writes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryTarget {
    /// All of it to the image.
    IntoImage,
    /// Some of it is elsewhere: in an earlier image, or sent to another machine.
    Elsewhere,
}

/// Whether the runtime stays as the container's parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreMode {
    /// `--detach`
    Detached,
    /// The runtime ends with the container.
    Attached,
}

/// Whether `delete` ends a running container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMode {
    /// A running container is refused.
    Stopped,
    /// `--force`: the container and an operation that is under way are ended.
    Force,
}

/// The options of `checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRequest {
    /// The container.
    pub id: String,
    /// `--image-path`, absolute; `./checkpoint` if not given, as for runc and crun.
    pub image_path: PathBuf,
    /// `--work-path`, absolute.
    pub work_path: Option<PathBuf>,
    /// `--leave-running`
    pub after: AfterDump,
    /// `--pre-dump`
    pub pre_dump: PreDump,
    /// `--parent-path`, relative to the image directory.
    pub parent_path: Option<PathBuf>,
    /// `--parent-path`, `--lazy-pages`, `--page-server`
    pub memory: MemoryTarget,
    /// The objects that CRIU is also asked to dump.
    pub criu: BTreeSet<CriuOption>,
    /// `--stasis-wait`, our own: how long it waits for another operation on the container. Without
    /// it, a second operation is refused at once.
    pub wait: Duration,
}

/// The options of `restore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreRequest {
    /// The container.
    pub id: String,
    /// `--bundle`, absolute; the working directory if not given.
    pub bundle: PathBuf,
    /// `--image-path`, taken from the bundle and made absolute; `./checkpoint` if not given.
    pub image_path: PathBuf,
    /// `--work-path`, absolute.
    pub work_path: Option<PathBuf>,
    /// `--pid-file`, absolute.
    pub pid_file: Option<PathBuf>,
    /// `--detach`
    pub mode: RestoreMode,
}

impl CheckpointRequest {
    /// CRIU's work directory: the image directory unless the caller named another.
    pub(crate) fn work(&self) -> &Path {
        self.work_path.as_ref().unwrap_or(&self.image_path)
    }

    /// Returns whether the processes of a container that was found in this state resume when its
    /// caller, which has paused it, resumes it.
    pub(crate) fn is_pending_on_resume(&self, found: FreezerState) -> bool {
        self.after == AfterDump::LeaveRunning && found == FreezerState::Frozen
    }
}

impl RestoreRequest {
    /// CRIU's work directory: the image directory unless the caller named another.
    pub(crate) fn work(&self) -> &Path {
        self.work_path.as_ref().unwrap_or(&self.image_path)
    }

    /// The paths that crun and runc resolve differently: crun changes into the bundle before it
    /// resolves any path (crun src/restore.c), runc after the default image path and the pid file.
    pub fn paths(&self) -> Vec<(&'static str, &OsStr)> {
        let image_path = Some(("--image-path", self.image_path.as_os_str()));
        let pid_file = self.pid_file.as_ref();
        let pid_file = pid_file.map(|path| ("--pid-file", path.as_os_str()));
        image_path.into_iter().chain(pid_file).collect()
    }
}

/// The caller's command line for the low-level runtime, with these options after the verb in place
/// of the caller's options of the same names.
pub type LowLevelArgs<'a> = &'a dyn Fn(&[(&str, &OsStr)]) -> Vec<OsString>;
