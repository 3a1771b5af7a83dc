//! Who copies a container's GPU contents runs where its processes may run: far from the GPU, all of
//! it goes from one NUMA node to the other.

use super::Process;
use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;
use crate::cuda::nvml::Inventory;

pub(super) fn finding(name: &str, process: &Process, inventory: &Inventory) -> Option<Finding> {
    let uses = inventory.uses(process.held.pid()).into_iter();
    let node = inventory.numa_node(uses.map(|used| used.uuid))?;
    let is_far = matches!(node.is_open_to(&process.held), Ok(Some(false)));
    is_far.then(|| {
        warning(
            "numa",
            format!("{name} may not run near to its GPU, on a CPU of {node}: copies are slower"),
            format!("give it CPUs of {node} (--cpuset-cpus), or another GPU"),
        )
    })
}
