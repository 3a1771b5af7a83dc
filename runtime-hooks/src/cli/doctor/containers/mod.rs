//! What running containers have, of the driver and around it.

mod confined;
mod interposer;
mod libcuda;
mod locked_memory;
mod near;

use std::io;
use std::time::Duration;

use stasis_linux::ProcessRef;
use stasis_linux::process::LockedMemory;

use crate::cli::doctor::Finding;
use crate::cli::locate::{Located, running};
use crate::cuda::nvml::Inventory;
use crate::host::deadline::within;
use interposer::Interposer;

/// A process whose memory map the kernel does not show keeps nobody waiting longer.
const LIMIT: Duration = Duration::from_secs(10);

/// A process of a container that may use CUDA. What ends meanwhile has nothing.
#[derive(Debug)]
struct Process {
    held: ProcessRef,
    libcuda: Option<String>,
    interposer: Option<Interposer>,
    locked: Option<LockedMemory>,
    profile: Option<String>,
}

/// Without a driver there is none that may.
pub(super) fn findings(inventory: Option<&Inventory>) -> Vec<Finding> {
    let Some(inventory) = inventory else {
        return Vec::new();
    };
    let containers = running(None).into_iter();
    containers
        .flat_map(|located| of(&located, inventory))
        .collect()
}

/// At most one finding of a kind for a container.
fn of(located: &Located, inventory: &Inventory) -> Vec<Finding> {
    let processes = processes_of(located).unwrap_or_default();
    let name = located.known().name;
    let name = name.unwrap_or_else(|| located.container.id().to_owned());
    let first = |judge: &dyn Fn(&Process) -> Option<Finding>| processes.iter().find_map(judge);
    let found = [
        first(&|process| libcuda::finding(&name, process, &inventory.driver_version)),
        first(&|process| interposer::finding(&name, process)),
        first(&|process| locked_memory::finding(&name, process, inventory)),
        first(&|process| confined::finding(&name, process)),
        first(&|process| near::finding(&name, process, inventory)),
    ];
    found.into_iter().flatten().collect()
}

fn processes_of(located: &Located) -> io::Result<Vec<Process>> {
    let candidates = located.container.snapshot()?.into_candidates();
    let look = move || candidates.into_iter().map(Process::of).collect();
    Ok(within(LIMIT, look)?)
}

impl Process {
    fn of(held: ProcessRef) -> Self {
        Self {
            libcuda: held.libcuda_version().ok().flatten(),
            interposer: Interposer::of(&held),
            locked: held.locked_memory().ok().flatten(),
            profile: held.enforced_profile().ok().flatten(),
            held,
        }
    }
}
