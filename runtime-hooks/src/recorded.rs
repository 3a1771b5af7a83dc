//! The GPUs that belong to the GPU state of a process.

use std::io;

use crate::allocation::minor_of;
use crate::gpu::{GpuUse, Inventory};
use crate::process::ProcessRef;

/// What a process holds on which GPU. NVML lists those on which it has a context; the driver opens
/// every GPU that it shows to the process, and wants a place for each of those at a restore. To
/// be asked before the GPU checkpoint: a checkpointed process has none open and is on no list.
///
/// # Errors
/// What reading `/proc` said.
pub(crate) fn recorded(process: &ProcessRef, inventory: &Inventory) -> io::Result<Vec<GpuUse>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::tests::inventory;

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
