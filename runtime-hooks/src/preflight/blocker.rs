//! The texts for blockers of a checkpoint: the process, the evidence, the consequence and the way
//! out.

use std::fmt;

use serde::Serialize;
use stasis_config::{BlockerKind, DEFAULT_PATH, Preflight};

use crate::preflight::peer_access::{ANNOTATION, NONE};

/// The variables that keep NCCL from sharing memory of the driver, as they go into a container's
/// environment. Fewer are enough (`preflight/nccl.rs`); these were tried longest (driver 580.159,
/// H200).
const NCCL_APART: &str =
    "NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0 NCCL_CUMEM_HOST_ENABLE=0 NCCL_NVLS_ENABLE=0";
/// What keeps the driver from saving or restoring a process; the rest keeps CRIU from dumping it.
pub const OF_THE_DRIVER: [BlockerKind; 7] = [
    BlockerKind::FailedState,
    BlockerKind::NcclP2p,
    BlockerKind::PeerAccess,
    BlockerKind::Mps,
    BlockerKind::Mig,
    BlockerKind::ManagedMemory,
    BlockerKind::LostGpu,
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
    pub fn check(found: Vec<Finding>, preflight: &Preflight) -> Result<Vec<Finding>, Self> {
        let (allowed, found): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|finding| preflight.allows(finding.kind));
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
        let has_sessions = kinds.pop_if(|kind| *kind == BlockerKind::ExecSession);
        if has_sessions.is_some() {
            write!(
                f,
                "; or let it end: preflight.exec = \"allow\" in {DEFAULT_PATH}"
            )?;
        }
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

/// The known consequence of a blocker.
#[must_use]
pub fn consequence(kind: BlockerKind) -> &'static str {
    match kind {
        BlockerKind::DriverVersion => "the driver has no calls for a checkpoint",
        BlockerKind::FailedState => {
            "the driver has lost the GPU state of a process and cannot save it"
        }
        BlockerKind::NcclP2p => {
            "NCCL ranks may share GPU memory (P2P), which this driver saves and then cannot \
             restore, so the job would be lost"
        }
        BlockerKind::PeerAccess => {
            "a process with much memory on several GPUs may have peer access between them (PyTorch \
             enables it at the first copy from one GPU to another), which this driver saves and \
             then cannot restore, so the job would be lost"
        }
        BlockerKind::Mps => "the driver cannot save clients of MPS",
        BlockerKind::Mig => "the driver cannot save processes on MIG slices",
        BlockerKind::ManagedMemory => "the driver cannot save managed memory",
        BlockerKind::LostGpu => {
            "NVML cannot report on a GPU that a process uses, so its contents cannot be relied on"
        }
        BlockerKind::NvidiaDevice => {
            "CRIU cannot dump an NVIDIA device of a process without CUDA state"
        }
        BlockerKind::Gdrdrv => "CRIU cannot dump GDRCopy's device",
        BlockerKind::Rdma => "CRIU cannot dump RDMA devices",
        BlockerKind::IoUring => "CRIU cannot dump io_uring rings",
        BlockerKind::ExecSession => {
            "a process that was started by exec is in no image, and ends when a checkpoint ends \
             the container"
        }
    }
}

/// The ways to remove a blocker.
#[must_use]
pub fn way_out(kind: BlockerKind) -> String {
    match kind {
        BlockerKind::DriverVersion => "install driver 570 (CUDA 12.8) or newer".to_owned(),
        BlockerKind::FailedState => "end the process and start it again".to_owned(),
        BlockerKind::NcclP2p => format!(
            "start the job with {NCCL_APART} in the container's environment or its /etc/nccl.conf \
             (what a program sets for itself after its start cannot be seen from outside)"
        ),
        BlockerKind::PeerAccess => format!(
            "have each process use one GPU (CUDA_VISIBLE_DEVICES); if no process of the container \
             has peer access, or all call cudaDeviceDisablePeerAccess before a checkpoint, start it \
             with the annotation {ANNOTATION}={NONE}"
        ),
        BlockerKind::Mps => {
            "run the job without MPS: no CUDA_MPS_PIPE_DIRECTORY, no mount of the server's \
             directory"
                .to_owned()
        }
        BlockerKind::Mig => {
            "give the container a whole GPU: nvidia-smi -i GPU -mig 0 on an idle GPU".to_owned()
        }
        BlockerKind::ManagedMemory => {
            "have the program use cudaMalloc or pinned memory in place of cudaMallocManaged"
                .to_owned()
        }
        BlockerKind::LostGpu => {
            "see dmesg (Xid) and nvidia-smi; if the GPU is gone, end the process, restore an \
             earlier image on another GPU, and reset this one or restart the machine"
                .to_owned()
        }
        BlockerKind::NvidiaDevice => {
            "end the process (nvidia-smi, DCGM, a monitor) for the time of the checkpoint, or run \
             it in a container of its own"
                .to_owned()
        }
        BlockerKind::Gdrdrv => {
            "keep /dev/gdrdrv out of the container, or switch GDRCopy off (UCX: \
             UCX_TLS=^gdr_copy)"
                .to_owned()
        }
        BlockerKind::Rdma => "keep /dev/infiniband out of the container, or have NCCL use sockets \
             (NCCL_IB_DISABLE=1)"
            .to_owned(),
        BlockerKind::IoUring => {
            // libuv makes one ring whatever UV_USE_IO_URING is (seen with PyTorch 2.11).
            "start the program without it (PyTorch's TCPStore: USE_LIBUV=0; others that use libuv: \
             UV_USE_IO_URING=0), or switch io_uring off before it starts (sysctl \
             kernel.io_uring_disabled=2)"
                .to_owned()
        }
        BlockerKind::ExecSession => {
            "end it first, start it from the container's own program, or have the checkpoint leave \
             the container running"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use stasis_config::ExecSessions;

    use super::*;

    fn finding(kind: BlockerKind, pid: i32) -> Finding {
        Finding {
            kind,
            pid,
            name: "rank".into(),
            evidence: format!("evidence {pid}"),
        }
    }

    #[test]
    fn all_blockers_are_told_together_each_way_out_once() {
        let found = vec![
            finding(BlockerKind::IoUring, 3),
            finding(BlockerKind::NcclP2p, 1),
            finding(BlockerKind::NcclP2p, 2),
        ];
        let text = Blockers::check(found, &Preflight::default())
            .unwrap_err()
            .to_string();
        for part in [
            "process 1 (rank): evidence 1, process 2 (rank): evidence 2; start the job with",
            "evidence 3",
            "allow = [\"nccl-p2p\", \"io-uring\"] in /etc/stasis/stasis.toml",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert_eq!(text.matches("NCCL_P2P_DISABLE=1").count(), 1, "{text}");
    }

    #[test]
    fn what_is_allowed_is_no_reason_and_is_not_forgotten() {
        let allow = Preflight {
            allow: vec![BlockerKind::IoUring],
            ..Preflight::default()
        };
        let both = vec![
            finding(BlockerKind::IoUring, 3),
            finding(BlockerKind::Mps, 1),
        ];
        let text = Blockers::check(both.clone(), &allow)
            .unwrap_err()
            .to_string();
        assert!(text.contains("mps") && !text.contains("io-uring"), "{text}");
        let allowed = Blockers::check(both[..1].to_vec(), &allow).unwrap();
        assert_eq!(allowed, both[..1]);
    }

    #[test]
    fn exec_sessions_have_a_setting_of_their_own() {
        let refuse = Preflight {
            exec: ExecSessions::Refuse,
            ..Preflight::default()
        };
        let session = finding(BlockerKind::ExecSession, 3);
        let text = |found: &[Finding]| {
            Blockers::check(found.to_vec(), &refuse)
                .unwrap_err()
                .to_string()
        };
        let alone = text(std::slice::from_ref(&session));
        assert!(
            alone.ends_with("preflight.exec = \"allow\" in /etc/stasis/stasis.toml"),
            "{alone}"
        );
        let both = text(&[session, finding(BlockerKind::Mps, 1)]);
        assert!(both.contains("preflight.exec = \"allow\""), "{both}");
        assert!(
            both.ends_with("preflight.allow = [\"mps\"] in /etc/stasis/stasis.toml"),
            "{both}"
        );
    }

    #[test]
    fn a_large_job_still_makes_a_readable_line() {
        let found = (1..=100)
            .map(|pid| finding(BlockerKind::NcclP2p, pid))
            .collect();
        let text = Blockers::check(found, &Preflight::default())
            .unwrap_err()
            .to_string();
        assert!(text.contains("and 92 more") && text.len() < 1500, "{text}");
    }
}
