//! The GPUs that belong to the GPU state of a process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;

use crate::cuda::GpuUuid;
use crate::cuda::device_node::minor_of;
use crate::cuda::nvml::{Inventory, ListedUse};

/// Bytes on each GPU.
pub type GpuBytes = BTreeMap<GpuUuid, u64>;

/// A process whose GPU state is in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudaProcess {
    /// Pid in the container's pid namespace; CRIU restores it with the same pid.
    pub pid: i32,
    /// Command name, for messages.
    pub name: String,
    /// Memory on each GPU, including GPUs that it only had open; empty if it used no GPU.
    pub gpus: Vec<GpuUse>,
}

/// The memory of one process on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuUse {
    /// The GPU.
    pub uuid: GpuUuid,
    /// Length in bytes, the context of the process included.
    pub memory_bytes: u64,
}

impl CudaProcess {
    /// Returns the memory on each GPU.
    pub fn gpu_bytes(&self) -> GpuBytes {
        let mut sum = GpuBytes::new();
        for gpu in &self.gpus {
            add(&mut sum, &GpuBytes::from([(gpu.uuid, gpu.memory_bytes)]));
        }
        sum
    }
}

/// Adds to the bytes on each GPU.
pub fn add(sum: &mut GpuBytes, more: &GpuBytes) {
    for (uuid, bytes) in more {
        let there = sum.entry(*uuid).or_default();
        *there = there.saturating_add(*bytes);
    }
}

/// Measures the memory of each of these processes on each GPU. NVML lists the GPUs on which a
/// process has a context; the driver opens every GPU that is visible to the process, and a restore
/// needs a target for each of them. Call this before the GPU checkpoint: a checkpointed process has
/// no GPU open, and NVML does not list it.
///
/// NVML may have no figure, or list no process at all or by pids of another namespace. An unknown
/// use never counts as 0: it counts as all memory of the GPU that no process is known to have, once
/// for all of these processes together.
pub fn measure(processes: &[&ProcessRef], inventory: &Inventory) -> io::Result<Vec<Vec<GpuUse>>> {
    let mut listed = Vec::with_capacity(processes.len());
    for process in processes {
        listed.push(join(
            inventory.uses(process.pid()),
            &minors(process)?,
            inventory,
        ));
    }
    Ok(fill_in(listed, |uuid| unaccounted(uuid, inventory)))
}

/// Reads the numbers of the GPUs that a process has open.
fn minors(process: &ProcessRef) -> io::Result<BTreeSet<u32>> {
    let open = process.open_nvidia_devices()?;
    Ok(open.filter_map(|path| minor_of(&path)).collect())
}

/// Adds the GPUs that a process has open, and for which NVML does not list it. If NVML lists the
/// process on another GPU, it has no context on these; otherwise its use is unknown.
fn join(mut uses: Vec<ListedUse>, minors: &BTreeSet<u32>, inventory: &Inventory) -> Vec<ListedUse> {
    let memory_bytes = (!uses.is_empty()).then_some(0);
    for (uuid, facts) in &inventory.facts {
        let is_listed = uses.iter().any(|listed| listed.uuid == *uuid);
        if minors.contains(&facts.minor) && !is_listed {
            let uuid = *uuid;
            uses.push(ListedUse { uuid, memory_bytes });
        }
    }
    uses
}

/// Gives the first unknown use of a GPU all memory that is `unaccounted` for there, and the others
/// nothing.
fn fill_in(listed: Vec<Vec<ListedUse>>, unaccounted: impl Fn(GpuUuid) -> u64) -> Vec<Vec<GpuUse>> {
    let mut filled = BTreeSet::new();
    let mut measured = |ListedUse { uuid, memory_bytes }| GpuUse {
        uuid,
        memory_bytes: memory_bytes.unwrap_or_else(|| {
            let is_first = filled.insert(uuid);
            if is_first { unaccounted(uuid) } else { 0 }
        }),
    };
    let measured = |uses: Vec<_>| uses.into_iter().map(&mut measured).collect();
    listed.into_iter().map(measured).collect()
}

/// The allocated bytes of a GPU that NVML does not list for a process of ours. A pid of another
/// namespace may be one of ours, too: such a process does not have that GPU open.
fn unaccounted(uuid: GpuUuid, inventory: &Inventory) -> u64 {
    let minor = inventory.facts.get(&uuid).map(|facts| facts.minor);
    let has_it_open = |pid| {
        let process = ProcessRef::open(pid).ok().flatten();
        let minors = process.and_then(|process| minors(&process).ok());
        minors.is_some_and(|minors| minor.is_some_and(|minor| minors.contains(&minor)))
    };
    let mut left = inventory.used_bytes.get(&uuid).copied().unwrap_or(u64::MAX);
    for (pid, uses) in &inventory.processes {
        let here = uses.iter().filter(|listed| listed.uuid == uuid);
        let bytes = here.filter_map(|listed| listed.memory_bytes).sum();
        if bytes > 0 && has_it_open(*pid) {
            left = left.saturating_sub(bytes);
        }
    }
    left
}

/// All GPU memory of these processes, in bytes.
#[must_use]
pub fn gpu_bytes<'p>(processes: impl IntoIterator<Item = &'p CudaProcess>) -> u64 {
    let uses = processes.into_iter().flat_map(|process| &process.gpus);
    uses.fold(0, |sum, gpu| sum.saturating_add(gpu.memory_bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use crate::cuda::job::tests::fixtures::inventory;

    fn listed(uuid: GpuUuid, memory_bytes: Option<u64>) -> ListedUse {
        ListedUse { uuid, memory_bytes }
    }

    #[test]
    fn gpus_that_are_only_open_count_with_nothing_on_them_if_nvml_lists_the_process() {
        let inventory = inventory(3);
        let uuid = |index: usize| inventory.gpus[index].uuid;
        let both = join(
            vec![listed(uuid(1), Some(5))],
            &BTreeSet::from([0, 1, 9]),
            &inventory,
        );
        assert_eq!(both, [listed(uuid(1), Some(5)), listed(uuid(0), Some(0))]);
        let none = join(Vec::new(), &BTreeSet::from([0]), &inventory);
        assert_eq!(none, [listed(uuid(0), None)]);
        assert_eq!(join(Vec::new(), &BTreeSet::new(), &inventory), []);
    }

    #[test]
    fn what_is_not_known_is_all_that_nobody_is_known_to_have_and_counts_once() {
        let inventory = inventory(2);
        let [a, b] = [inventory.gpus[0].uuid, inventory.gpus[1].uuid];
        let processes = vec![
            vec![listed(a, Some(5)), listed(b, None)],
            vec![listed(a, None), listed(b, None)],
        ];
        let measured = fill_in(processes, |uuid| if uuid == a { 30 } else { 70 });
        let bytes: Vec<u64> = measured
            .iter()
            .flatten()
            .map(|measured| measured.memory_bytes)
            .collect();
        assert_eq!(bytes, [5, 70, 30, 0]);
    }

    #[test]
    fn only_a_process_that_has_the_gpu_open_accounts_for_memory() {
        let mut inventory = inventory(1);
        let uuid = inventory.gpus[0].uuid;
        inventory.used_bytes.insert(uuid, 50);
        // This process has no GPU open: NVML's pid is another process, elsewhere.
        let own = i32::try_from(std::process::id()).unwrap();
        inventory
            .processes
            .insert(own, vec![listed(uuid, Some(40))]);
        assert_eq!(unaccounted(uuid, &inventory), 50);
    }
}
