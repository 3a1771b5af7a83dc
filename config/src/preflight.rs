//! The kinds of blockers of a checkpoint, and those that the administrator allows.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `[preflight]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Preflight {
    /// Blockers that do not refuse a checkpoint.
    pub allow: Vec<BlockerKind>,
    /// What a checkpoint does that ends the container while processes run in it that `exec`
    /// started.
    pub exec: ExecSessions,
    /// What a checkpoint does if a disk has less room than all memory would take.
    pub disk_space: DiskSpace,
}

/// What a checkpoint does if a disk has less room than all memory would take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskSpace {
    /// It is refused.
    #[default]
    Require,
    /// It is tried.
    Ignore,
}

/// Processes that `exec` started in a container. CRIU dumps the tree of the container's init, and
/// they are not in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecSessions {
    /// They end with the container.
    #[default]
    Allow,
    /// The checkpoint is refused.
    Refuse,
}

/// A reason not to begin a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockerKind {
    /// The driver lacks the checkpoint calls.
    DriverVersion,
    /// The driver has lost the GPU state of a process.
    FailedState,
    /// NCCL of several processes may share GPU memory between them.
    NcclP2p,
    /// A process may have peer access between GPUs.
    PeerAccess,
    /// A client of the Multi-Process Service.
    Mps,
    /// A process on a slice of a GPU.
    Mig,
    /// Managed (unified) memory.
    ManagedMemory,
    /// A process has a GPU open that NVML cannot report on.
    LostGpu,
    /// The driver frees a GPU of a process once nobody uses it.
    Persistence,
    /// Nobody knows what a process held on GPUs, since another program has saved its state.
    UnknownGpus,
    /// A process holds an NVIDIA device without using CUDA.
    NvidiaDevice,
    /// `/dev/gdrdrv` is in use.
    Gdrdrv,
    /// RDMA devices are in use.
    Rdma,
    /// `io_uring` rings are in use.
    IoUring,
    /// A process has the memory of another one.
    SameMemory,
    /// A container with a user namespace has joined the network or the pids of others.
    JoinedNamespace,
    /// A process that was started by `exec` is in no image.
    ExecSession,
    /// Its engine has another runtime than stasis checkpoint the container.
    OtherRuntime,
    /// Docker, which has checkpoints only if it is "experimental", is not.
    DockerExperimental,
}

impl BlockerKind {
    /// All kinds, those of the driver first.
    pub const ALL: [Self; 19] = [
        Self::DriverVersion,
        Self::FailedState,
        Self::NcclP2p,
        Self::PeerAccess,
        Self::Mps,
        Self::Mig,
        Self::ManagedMemory,
        Self::LostGpu,
        Self::Persistence,
        Self::UnknownGpus,
        Self::NvidiaDevice,
        Self::Gdrdrv,
        Self::Rdma,
        Self::IoUring,
        Self::SameMemory,
        Self::JoinedNamespace,
        Self::ExecSession,
        Self::OtherRuntime,
        Self::DockerExperimental,
    ];

    /// Its name in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DriverVersion => "driver-version",
            Self::FailedState => "failed-state",
            Self::NcclP2p => "nccl-p2p",
            Self::PeerAccess => "peer-access",
            Self::Mps => "mps",
            Self::Mig => "mig",
            Self::ManagedMemory => "managed-memory",
            Self::LostGpu => "lost-gpu",
            Self::Persistence => "persistence",
            Self::UnknownGpus => "unknown-gpus",
            Self::NvidiaDevice => "nvidia-device",
            Self::Gdrdrv => "gdrdrv",
            Self::Rdma => "rdma",
            Self::IoUring => "io-uring",
            Self::SameMemory => "same-memory",
            Self::JoinedNamespace => "joined-namespace",
            Self::ExecSession => "exec-session",
            Self::OtherRuntime => "other-runtime",
            Self::DockerExperimental => "docker-experimental",
        }
    }

    /// The setting that lets a checkpoint be tried all the same; `None` if the driver lacks the
    /// calls for it.
    #[must_use]
    pub fn setting(self) -> Option<&'static str> {
        match self {
            Self::DriverVersion => None,
            Self::ExecSession => Some("preflight.exec"),
            Self::Persistence => Some("restore.persistence"),
            _ => Some("preflight.allow"),
        }
    }
}

impl fmt::Display for BlockerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Preflight {
    pub(crate) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let why = self.allow.iter().find_map(|kind| match kind {
            BlockerKind::DriverVersion => Some(
                "must not have \"driver-version\": an older driver has no calls for a checkpoint",
            ),
            BlockerKind::ExecSession => {
                Some("must not have \"exec-session\": preflight.exec says what is done about it")
            }
            BlockerKind::Persistence => Some(
                "must not have \"persistence\": restore.persistence says what is done about it",
            ),
            _ => None,
        });
        why.map_or(Ok(()), |why| Err(("preflight.allow", why)))
    }
}
