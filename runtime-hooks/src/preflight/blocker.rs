//! The texts for blockers of a checkpoint: the process, the evidence, the consequence and the way
//! out.

use std::fmt;

use serde::Serialize;
use stasis_config::{BlockerKind, DEFAULT_PATH, Settings};

/// What keeps the driver from saving or restoring a process; the rest keeps CRIU from dumping it.
pub const OF_THE_DRIVER: [BlockerKind; 9] = [
    BlockerKind::FailedState,
    BlockerKind::NcclP2p,
    BlockerKind::PeerAccess,
    BlockerKind::Mps,
    BlockerKind::Mig,
    BlockerKind::ManagedMemory,
    BlockerKind::LostGpu,
    BlockerKind::Persistence,
    BlockerKind::UnknownGpus,
];
/// How to let a checkpoint begin in spite of blockers that `preflight.allow` does not take.
const WITH_SETTINGS_OF_THEIR_OWN: [(BlockerKind, &str); 2] = [
    (
        BlockerKind::ExecSession,
        "let it end: preflight.exec = \"allow\"",
    ),
    (
        BlockerKind::Persistence,
        "try it anyway: restore.persistence = \"ignore\"",
    ),
];
/// A job may have hundreds of processes, and an error is one line.
const LISTED: usize = 8;

/// One process that cannot be checkpointed as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: BlockerKind,
    /// The pid in our namespace.
    pub pid: i32,
    /// Its command name.
    pub name: String,
    /// The descriptor, mapping, thread, variable or state that shows the blocker.
    pub evidence: String,
}

/// The blockers of a container that the settings do not allow.
#[derive(Debug)]
pub struct Blockers {
    found: Vec<Finding>,
}

impl Blockers {
    /// Returns the findings if the settings allow them all; otherwise an error with the others.
    ///
    /// # Errors
    /// [`Blockers`], if a finding is not allowed.
    pub fn check(found: Vec<Finding>, settings: &Settings) -> Result<Vec<Finding>, Self> {
        let (allowed, found): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|finding| settings.allows(finding.kind));
        if found.is_empty() {
            Ok(allowed)
        } else {
            Err(Self { found })
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.pid, self.name, self.evidence)
    }
}

impl fmt::Display for Blockers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<BlockerKind> = self.found.iter().map(|finding| finding.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for (position, kind) in kinds.iter().enumerate() {
            if position > 0 {
                f.write_str("; ")?;
            }
            let of_kind = self.found.iter().filter(|finding| finding.kind == *kind);
            let listed: Vec<String> = of_kind.map(ToString::to_string).collect();
            write!(f, "{kind}: {}, seen in process ", consequence(*kind))?;
            f.write_str(&listed[..listed.len().min(LISTED)].join(", process "))?;
            if listed.len() > LISTED {
                write!(f, " and {} more", listed.len() - LISTED)?;
            }
            write!(f, "; {}", way_out(*kind))?;
        }
        for (kind, anyway) in WITH_SETTINGS_OF_THEIR_OWN {
            if kinds.contains(&kind) {
                kinds.retain(|other| *other != kind);
                write!(f, "; or {anyway} in {DEFAULT_PATH}")?;
            }
        }
        kinds.retain(|kind| kind.setting().is_some());
        if kinds.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = kinds.iter().map(|kind| format!("\"{kind}\"")).collect();
        write!(
            f,
            "; or try the checkpoint anyway: preflight.allow = [{}] in {DEFAULT_PATH}",
            names.join(", ")
        )
    }
}

impl std::error::Error for Blockers {}

/// The known consequence of each blocker, and the ways to remove it.
const TEXTS: [(BlockerKind, &str, &str); 20] = [
    (
        BlockerKind::DriverVersion,
        "the driver has no calls for a checkpoint",
        "install driver 570 (CUDA 12.8) or newer",
    ),
    (
        BlockerKind::FailedState,
        "the driver has lost the GPU state of a process and cannot save it",
        "end the process and start it again",
    ),
    (
        BlockerKind::NcclP2p,
        "NCCL ranks may share GPU memory (P2P), which this driver saves and then cannot restore, so \
         the job would be lost",
        "start the container with the annotation io.stasis.nccl=checkpointable, or the job with \
         NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0 NCCL_CUMEM_HOST_ENABLE=0 NCCL_NVLS_ENABLE=0 in its \
         environment or the container's /etc/nccl.conf (what a program sets for itself after its \
         start cannot be seen from outside)",
    ),
    (
        BlockerKind::PeerAccess,
        "a process with much memory on several GPUs may have peer access between them (PyTorch \
         enables it at the first copy from one GPU to another), which this driver saves and then \
         cannot restore, so the job would be lost",
        "have each process use one GPU (CUDA_VISIBLE_DEVICES); if no process of the container has \
         peer access, or all call cudaDeviceDisablePeerAccess before a checkpoint, start it with the \
         annotation io.stasis.peer-access=none",
    ),
    (
        BlockerKind::Mps,
        "the driver cannot save clients of MPS",
        "run the job without MPS: no CUDA_MPS_PIPE_DIRECTORY, no mount of the server's directory",
    ),
    (
        BlockerKind::Mig,
        "the driver cannot save processes on MIG slices",
        "give the container a whole GPU: nvidia-smi -i GPU -mig 0 on an idle GPU",
    ),
    (
        BlockerKind::ManagedMemory,
        "the driver cannot save managed memory",
        "have the program use cudaMalloc or pinned memory in place of cudaMallocManaged",
    ),
    (
        BlockerKind::LostGpu,
        "NVML cannot report on a GPU that a process uses, so its contents cannot be relied on",
        "see dmesg (Xid) and nvidia-smi; if the GPU is gone, end the process, restore an earlier \
         image on another GPU, and reset this one or restart the machine",
    ),
    (
        BlockerKind::Persistence,
        "without persistence mode the driver frees a GPU with its last user, and then restores \
         nothing to it, also not after a checkpoint that fails or leaves the container running",
        "switch persistence mode on (nvidia-smi -pm 1, or nvidia-persistenced)",
    ),
    (
        BlockerKind::UnknownGpus,
        "another program has moved the GPU state of a process to host memory, and the driver does \
         not say what it held on which GPUs: a restore without room there loses it",
        "restore it first: cuda-checkpoint --toggle --pid PID",
    ),
    (
        BlockerKind::NvidiaDevice,
        "CRIU cannot dump an NVIDIA device of a process without CUDA state",
        "end the process (nvidia-smi, DCGM, a monitor) for the time of the checkpoint, or run it in \
         a container of its own",
    ),
    (
        BlockerKind::Gdrdrv,
        "CRIU cannot dump GDRCopy's device",
        "keep /dev/gdrdrv out of the container, or switch GDRCopy off (UCX: UCX_TLS=^gdr_copy)",
    ),
    (
        BlockerKind::Rdma,
        "CRIU cannot dump RDMA devices",
        "keep /dev/infiniband out of the container, or have NCCL use sockets (NCCL_IB_DISABLE=1)",
    ),
    (
        BlockerKind::IoUring,
        "CRIU cannot dump io_uring rings",
        // libuv makes one ring whatever UV_USE_IO_URING is (seen with PyTorch 2.11).
        "start the program without it (PyTorch's TCPStore: USE_LIBUV=0; others that use libuv: \
         UV_USE_IO_URING=0), or switch io_uring off before it starts (sysctl \
         kernel.io_uring_disabled=2)",
    ),
    (
        BlockerKind::SameMemory,
        "CRIU cannot dump processes that have one memory (CLONE_VM, vfork)",
        "try again once it has exec'd or ended; a program that keeps such a process has to be \
         changed: threads, or fork in place of vfork",
    ),
    (
        BlockerKind::MainThreadEnded,
        "CRIU takes a process whose first thread has ended for one that is over, and dumps nothing \
         of it",
        "have its main function wait for its threads (pthread_join) in place of ending by \
         pthread_exit",
    ),
    (
        BlockerKind::JoinedNamespace,
        "CRIU makes a container's user namespace anew at a restore, and its root may not join the \
         namespaces that the container is given by a path, such as its pod's",
        "run it without a user namespace (Kubernetes: hostUsers: true), or with a network and pids \
         of its own",
    ),
    (
        BlockerKind::ExecSession,
        "a process that was started by exec is in no image, and ends when a checkpoint ends the \
         container",
        "end it first, start it from the container's own program, or have the checkpoint leave the \
         container running",
    ),
    (
        BlockerKind::OtherRuntime,
        "its engine has another runtime than stasis checkpoint it, with which CRIU fails at the \
         driver's devices, or leaves out what is on the GPU",
        "make the container again with stasis as its runtime (podman --runtime stasis run, docker \
         run --runtime stasis, ctr run --runtime io.containerd.stasis.v2, a pod's RuntimeClass; \
         `stasis setup ENGINE` tells the engine of it), or checkpoint it without its engine: stasis \
         checkpoint --group NAME --into DIR",
    ),
    (
        BlockerKind::DockerExperimental,
        "Docker has checkpoints only if its settings say that it is \"experimental\"",
        "`stasis setup docker` writes that; then restart Docker, which ends its containers unless \
         it has \"live-restore\"",
    ),
];

/// The known consequence of a blocker.
#[must_use]
pub fn consequence(kind: BlockerKind) -> &'static str {
    texts(kind).0
}

/// The ways to remove a blocker.
#[must_use]
pub fn way_out(kind: BlockerKind) -> &'static str {
    texts(kind).1
}

fn texts(kind: BlockerKind) -> (&'static str, &'static str) {
    let texts = TEXTS.iter().find(|(known, ..)| *known == kind);
    texts.map_or(("", ""), |(_, consequence, way_out)| (consequence, way_out))
}

#[cfg(test)]
mod tests;
