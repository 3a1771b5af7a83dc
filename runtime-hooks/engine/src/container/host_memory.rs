//! Checks that the host and the limits of a container have room for GPU contents in host memory.

use std::io;

use stasis_gpu::ledger::amounts::{Amounts, Resource, Short};
use stasis_gpu::ledger::{NotReserved, Reservation, WaitFor, WaitLimit};
use stasis_linux::procfs::MemInfo;

use crate::container::memory_limit::{MemoryCgroup, TightLimit};

/// The most that the driver needs beside the contents themselves (measured on driver 580.159).
const MARGIN: u64 = 128 << 20;

/// The remedies for a limit of the container, and for a limit above it.
const RAISE: &str = "raise it (podman update --memory, docker update --memory, or systemctl \
                     set-property --runtime UNIT MemoryMax=), or let many threads copy, which needs \
                     no room there (gpu_checkpoint.path = \"auto\" in the settings)";
const RAISE_ABOVE: &str = "it is above the container's cgroup: raise that one (of the pod, or of a \
                           slice: systemctl set-property --runtime SLICE MemoryMax=), or move other \
                           containers out of it, and try again";

/// Host memory has no room for GPU contents.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NoHostMemory {
    #[error(
        "the container needs {} MiB of host memory for this, and the host has {} available{}; \
         make room and try again",
        .0.wanted >> 20, .0.free, .0.reserved
    )]
    Host(Box<Short>),
    #[error("{tight}, and {} MiB are needed beside them; {remedy}", .needed >> 20)]
    Limit {
        tight: TightLimit,
        needed: u64,
        remedy: &'static str,
    },
    #[error(
        "the memory limit of the new container ({name}) allows {} MiB, and its image has {} MiB; \
         create it with a higher one",
        .limit >> 20, .needed >> 20
    )]
    LimitOfNew {
        name: String,
        limit: u64,
        needed: u64,
    },
    #[error("cannot use the ledger of memory, below the state directory")]
    Ledger(#[source] io::Error),
    #[error("cannot read the limits of the container's host memory")]
    Io(#[from] io::Error),
}

/// Refuses GPU contents of this size if a limit of the container, or above it, has no room.
pub(crate) fn admit_limits(cgroup: &MemoryCgroup, gpu_bytes: u64) -> Result<(), NoHostMemory> {
    let needed = needed_for(gpu_bytes);
    check_limits_above(cgroup, needed)?;
    refuse_tight(cgroup.tight_limits(needed)?, needed, RAISE)
}

fn refuse_tight(
    tight: Vec<TightLimit>,
    needed: u64,
    remedy: &'static str,
) -> Result<(), NoHostMemory> {
    tight.into_iter().next().map_or(Ok(()), |tight| {
        Err(NoHostMemory::Limit {
            tight,
            needed,
            remedy,
        })
    })
}

/// Where an operation reserves host memory, and how long it waits for others to release theirs.
#[derive(Debug)]
pub struct HostRoom<'a>(pub &'a Reservation, pub WaitLimit);

impl HostRoom<'_> {
    fn reserve(
        self,
        needed: u64,
        available: impl Fn() -> io::Result<u64>,
    ) -> Result<(), NoHostMemory> {
        let amounts = |bytes| Amounts::from_iter([(Resource::HostMemory, bytes)]);
        let look = || Ok(amounts(available()?));
        let wait_for = WaitFor::Reservations;
        let wanted = amounts(needed);
        let Self(reservation, wait_limit) = self;
        let reserved = reservation.reserve(&wanted, wait_for, &wait_limit, look);
        reserved.map_err(|error| match error {
            NotReserved::Short(short) => NoHostMemory::Host(short),
            NotReserved::Unknown(error) => NoHostMemory::Io(error),
            NotReserved::Ledger(error) => NoHostMemory::Ledger(error),
        })
    }
}

/// Refuses contents of this size if the host has no room for them, or reserves it.
///
/// # Errors
/// [`NoHostMemory::Host`], with both figures.
pub(crate) fn admit_host(room: HostRoom<'_>, bytes: u64) -> Result<(), NoHostMemory> {
    admit_host_beside(room, bytes, 0)
}

/// [`admit_host`] with so many more bytes of host memory `beside` the contents.
pub(crate) fn admit_host_beside(
    room: HostRoom<'_>,
    bytes: u64,
    beside: u64,
) -> Result<(), NoHostMemory> {
    room.reserve(needed_for(bytes).saturating_add(beside), available)
}

/// Refuses if a limit above the container has no room for `needed` bytes.
pub(crate) fn check_limits_above(cgroup: &MemoryCgroup, needed: u64) -> Result<(), NoHostMemory> {
    refuse_tight(cgroup.tight_limits_above(needed)?, needed, RAISE_ABOVE)
}

/// Returns the host memory that contents of this size need, in bytes. Without contents, the driver
/// needs none either.
pub(crate) fn needed_for(gpu_bytes: u64) -> u64 {
    if gpu_bytes == 0 {
        return 0;
    }
    gpu_bytes
        .saturating_add(gpu_bytes / 16)
        .saturating_add(MARGIN)
}

/// `MemAvailable` in bytes: available without swapping (proc_meminfo(5)).
///
/// # Errors
/// It cannot be read.
pub fn available() -> io::Result<u64> {
    let available = MemInfo::read()?.available();
    available.ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stasis_linux::cgroup::Cgroup;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_host_without_room_is_refused_with_both_figures() {
        let state_dir = tempfile::tempdir().unwrap();
        let reservation = Reservation::new(state_dir.path(), "c1");
        let reserve = |needed: u64, available: u64| {
            HostRoom(&reservation, WaitLimit::none()).reserve(needed, || Ok(available))
        };
        reserve(needed_for(1600 * MIB), 1828 * MIB).unwrap();
        let refusal = reserve(needed_for(1600 * MIB), 1827 * MIB).unwrap_err();
        let text = refusal.to_string();
        assert!(
            text.contains("needs 1828 MiB") && text.contains("has 1827 MiB"),
            "{text}"
        );
        assert!(reserve(needed_for(u64::MAX), u64::MAX - 1).is_err());
    }

    #[test]
    fn a_limit_that_leaves_too_little_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let file =
            |name: &str, bytes: u64| fs::write(directory.path().join(name), bytes.to_string());
        file("memory.max", 256 * MIB).unwrap();
        file("memory.current", 100 * MIB).unwrap();
        fs::write(directory.path().join("memory.stat"), "").unwrap();
        let cgroup = MemoryCgroup::new(Cgroup::v2(directory.path().into()));
        let admit = |bytes| admit_limits(&cgroup, bytes);
        admit(16 * MIB).unwrap();
        let refusal = admit(64 * MIB).unwrap_err().to_string();
        assert!(
            refusal.contains("allows 256 MiB, of which 100 MiB")
                && refusal.contains("podman update"),
            "{refusal}"
        );
    }

    #[test]
    fn a_limit_above_the_container_refuses() {
        let pod = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| fs::write(pod.path().join(name), text).unwrap();
        file("memory.max", (256 * MIB).to_string());
        file("memory.current", (100 * MIB).to_string());
        let cgroup = MemoryCgroup::new(Cgroup::v2(pod.path().join("container")));
        let admit = |bytes| admit_limits(&cgroup, bytes);
        admit(16 * MIB).unwrap();
        let text = admit(64 * MIB).unwrap_err().to_string();
        let file = pod.path().join("memory.max").display().to_string();
        assert!(
            text.contains(&file) && text.contains("256 MiB, of which 100 MiB"),
            "{text}"
        );
    }
}
