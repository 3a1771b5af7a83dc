//! The GPUs that belong to the GPU state of a process.

use std::io;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;

use crate::cuda::device_node::minor_of;
use crate::cuda::nvml::{GpuUse, Inventory};

/// A process whose GPU state is in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudaProcess {
    /// Its pid in the container's pid namespace; CRIU restores it with the same pid.
    pub pid: i32,
    /// Its command name, for messages.
    pub name: String,
    /// Its memory on each GPU, including GPUs that it only had open; empty if it used no GPU.
    pub gpus: Vec<GpuUse>,
}

/// Reads the memory of a process on each GPU. NVML lists the GPUs on which the process has a
/// context; the driver opens every GPU that is visible to the process, and a restore needs a target
/// for each of them. Call this before the GPU checkpoint: a checkpointed process has no GPU open,
/// and NVML does not list it.
///
/// # Errors
/// An error of reading `/proc`.
pub(crate) fn gpus_of(process: &ProcessRef, inventory: &Inventory) -> io::Result<Vec<GpuUse>> {
    let open = process.open_nvidia_devices()?;
    let minors: Vec<u32> = open.iter().filter_map(|path| minor_of(path)).collect();
    Ok(join(inventory.uses(process.pid()), &minors, inventory))
}

fn join(mut uses: Vec<GpuUse>, minors: &[u32], inventory: &Inventory) -> Vec<GpuUse> {
    for (uuid, facts) in &inventory.facts {
        let is_listed = uses.iter().any(|listed| listed.uuid == *uuid);
        if minors.contains(&facts.minor) && !is_listed {
            uses.push(GpuUse {
                uuid: *uuid,
                memory_bytes: Some(0),
            });
        }
    }
    uses
}

/// All GPU memory of these processes, in bytes, as far as it is known.
#[must_use]
pub fn gpu_bytes<'p>(processes: impl IntoIterator<Item = &'p CudaProcess>) -> Option<u64> {
    let uses = processes.into_iter().flat_map(|process| &process.gpus);
    uses.filter_map(|gpu| gpu.memory_bytes)
        .reduce(u64::saturating_add)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cuda::GpuUuid;

    /// `processes` processes, each on eight GPUs, [1; 16] to [8; 16].
    pub(crate) fn on_eight_gpus(processes: i32) -> Vec<CudaProcess> {
        let gpus = (1..=8).map(|number| GpuUse {
            uuid: GpuUuid::from_bytes([number; 16]),
            memory_bytes: Some(140 << 30),
        });
        let gpus: Vec<_> = gpus.collect();
        let processes = (1..=processes).map(|pid| CudaProcess {
            pid,
            name: "pt_data_worker_".to_owned(),
            gpus: gpus.clone(),
        });
        processes.collect()
    }

    use crate::restore::admission::visible_gpus::tests::inventory;

    #[test]
    fn gpus_that_are_only_open_count_with_nothing_on_them() {
        let inventory = inventory(3);
        let used = |index: usize, bytes| GpuUse {
            uuid: inventory.gpus[index].uuid,
            memory_bytes: Some(bytes),
        };
        let both = join(vec![used(1, 5)], &[0, 1, 9], &inventory);
        assert_eq!(both, [used(1, 5), used(0, 0)]);
        assert_eq!(join(Vec::new(), &[], &inventory), []);
    }
}
