//! Peer access between GPUs inside one process.
//!
//! A process that has called `cuCtxEnablePeerAccess` (PyTorch does at its first copy from one GPU
//! to another) and has an allocation of 512 MiB or more is checkpointed without an error, and its
//! restore fails with CUDA_ERROR_INVALID_VALUE and loses it (driver 580.159, two H200). With
//! allocations of up to 256 MiB it is restored. Nothing in `/proc` shows peer access. Once the
//! process is locked, its driver's checkpoint thread tells ([`crate::preflight::sharing`]); where
//! that cannot be, only the memory of the process on each GPU decides.

use stasis_gpu::cuda::nvml::ListedUse;

use crate::container::Container;
use crate::container::spec::annotation::{NO_PEER_ACCESS, PEER_ACCESS as ANNOTATION};

/// From how much memory on one GPU, as NVML counts it, a process may have an allocation that is not
/// restored. NVML counts the context, too: 520 to 600 MiB on H200. So 600 + 256 MiB is known to be
/// restored, and 520 + 512 MiB is not. The limit is nearer to the former, since a context is
/// smaller on other GPUs, and a refused checkpoint costs less than a lost job.
const SUSPICIOUS_BYTES: u64 = 896 << 20;

/// A container's declaration about peer access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAccess {
    /// Any process with memory on several GPUs may have it.
    Unknown,
    /// The container's annotation declares that no process has it.
    DeclaredNone,
}

impl PeerAccess {
    /// Reads the container's annotation; `Unknown` if its bundle cannot be read.
    #[must_use]
    pub fn of(container: &Container) -> Self {
        let spec = container.spec();
        let declared = spec.as_ref().and_then(|spec| spec.annotation(ANNOTATION));
        match declared {
            Some(NO_PEER_ACCESS) => Self::DeclaredNone,
            _ => Self::Unknown,
        }
    }
}

/// Returns the evidence that a restore may lose a process with these GPUs, if there is any.
pub(crate) fn evidence(uses: &[ListedUse]) -> Option<String> {
    let held = uses
        .iter()
        .filter_map(|gpu| Some((gpu.uuid, gpu.memory_bytes?)));
    let large: Vec<String> = held
        .filter(|(_, bytes)| *bytes >= SUSPICIOUS_BYTES)
        .map(|(uuid, bytes)| format!("{} MiB on {uuid}", bytes >> 20))
        .collect();
    (large.len() >= 2).then(|| format!("it holds {}", large.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_gpu::cuda::GpuUuid;

    fn holding(mib: &[Option<u64>]) -> Vec<ListedUse> {
        let numbered = (1..).zip(mib);
        let uses = numbered.map(|(number, mib)| ListedUse {
            uuid: GpuUuid::from_bytes([number; 16]),
            memory_bytes: mib.map(|mib| mib << 20),
        });
        uses.collect()
    }

    #[test]
    fn contexts_and_what_was_seen_to_be_restored_are_no_evidence() {
        for mib in [
            &[][..],
            &[Some(80_000)],
            &[Some(80_000), Some(600), Some(520)],
            &[Some(600 + 256), Some(600 + 256)],
            &[Some(80_000), None],
        ] {
            assert_eq!(evidence(&holding(mib)), None, "{mib:?}");
        }
    }

    #[test]
    fn what_was_seen_to_be_lost_is_named_with_its_gpus() {
        let found = evidence(&holding(&[Some(520 + 512), Some(520), Some(520 + 512)])).unwrap();
        assert_eq!(
            found,
            "it holds 1032 MiB on GPU-01010101-0101-0101-0101-010101010101 and 1032 MiB on \
             GPU-03030303-0303-0303-0303-030303030303"
        );
    }
}
