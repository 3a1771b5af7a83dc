//! The kinds of blockers of a checkpoint, and the settings that allow some of them.

use serde::{Deserialize, Serialize};

/// `[preflight]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Preflight {
    /// Blockers that do not refuse a checkpoint.
    pub allow: Vec<BlockerKind>,
    /// Treatment of processes started by `exec` at a checkpoint that ends the container.
    pub exec: ExecSessions,
    /// Treatment of a disk with less room than all memory would take.
    pub disk_space: DiskSpace,
}

/// Treatment of a disk with less room than all memory would take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskSpace {
    /// Refuses the checkpoint.
    #[default]
    Require,
    /// Tries the checkpoint.
    Ignore,
}

/// Treatment of processes that `exec` started in a container. CRIU dumps the tree of the
/// container's init, which does not include them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecSessions {
    /// The processes end with the container.
    #[default]
    Allow,
    /// The checkpoint is refused.
    Refuse,
}

crate::words! {
    /// A reason not to begin a checkpoint; in order, those of the driver first.
    #[derive(Deserialize)]
    BlockerKind {
        /// The driver lacks the checkpoint calls.
        DriverVersion = "driver-version",
        /// The driver has lost the GPU state of a process.
        FailedState = "failed-state",
        /// NCCL of several processes may share GPU memory between them.
        NcclP2p = "nccl-p2p",
        /// A process may have peer access between GPUs.
        PeerAccess = "peer-access",
        /// Another program uses a GPU of ranks that share GPU memory.
        SharedGpu = "shared-gpu",
        /// A client of the Multi-Process Service.
        Mps = "mps",
        /// A process on a slice of a GPU.
        Mig = "mig",
        /// Managed (unified) memory.
        ManagedMemory = "managed-memory",
        /// A process has a GPU open that NVML cannot report on.
        LostGpu = "lost-gpu",
        /// The driver frees a GPU of a process once no process uses it.
        Persistence = "persistence",
        /// The GPUs of a process are unknown, since another program has saved its state.
        UnknownGpus = "unknown-gpus",
        /// A process holds an NVIDIA device without using CUDA.
        NvidiaDevice = "nvidia-device",
        /// `/dev/gdrdrv` is in use.
        Gdrdrv = "gdrdrv",
        /// RDMA devices are in use.
        Rdma = "rdma",
        /// `io_uring` rings are in use.
        IoUring = "io-uring",
        /// A connection that CRIU was not asked to save.
        TcpConnection = "tcp-connection",
        /// A unix socket that is connected with a process outside of the container.
        UnixConnection = "unix-connection",
        /// A file without a name that CRIU was not asked to save, or not at its size.
        DeletedFile = "deleted-file",
        /// A watch of inotify(7) on a file that CRIU does not find.
        Watch = "inotify-watch",
        /// A POSIX message queue.
        MessageQueue = "message-queue",
        /// A process has a namespace of its own of a kind that all have to share.
        NestedNamespace = "nested-namespace",
        /// A process holds a kernel object that CRIU does not know.
        KernelObject = "kernel-object",
        /// A process has the memory of another one.
        SameMemory = "same-memory",
        /// The first thread of a process has ended, and others go on.
        MainThreadEnded = "main-thread-ended",
        /// A container with a user namespace has joined the network or the pids of others.
        JoinedNamespace = "joined-namespace",
        /// A process that was started by `exec` is in no image.
        ExecSession = "exec-session",
        /// The container's engine has another runtime than stasis checkpoint it.
        OtherRuntime = "other-runtime",
        /// Docker, which has checkpoints only if it is "experimental", is not.
        DockerExperimental = "docker-experimental",
    }
}

impl BlockerKind {
    /// Returns the setting that allows the checkpoint to be tried; `None` if the driver lacks the
    /// calls for it, or if the checkpoint would be reported as good and lose a process.
    #[must_use]
    pub fn setting(self) -> Option<&'static str> {
        match self {
            Self::DriverVersion | Self::MainThreadEnded => None,
            Self::ExecSession => Some("preflight.exec"),
            Self::Persistence => Some("restore.persistence"),
            _ => Some("preflight.allow"),
        }
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
