//! Versions of libcuda and AppArmor profiles in running containers.

use std::io;
use std::time::Duration;

use stasis_gpu::cuda::nvml::Inventory;
use stasis_host::deadline::within;
use stasis_linux::ProcessRef;
use stasis_locate::{Located, running};

use super::{Finding, warning};

/// The longest wait for a process whose memory map the kernel does not show.
const LIMIT: Duration = Duration::from_secs(10);

/// A process of a container that may use CUDA. A process that ends meanwhile has nothing to report.
#[derive(Debug)]
struct Process {
    libcuda: Option<String>,
    profile: Option<String>,
}

/// Looks at containers that may use CUDA; without a driver there are none.
pub(super) fn findings(inventory: Option<&Inventory>) -> Vec<Finding> {
    let Some(inventory) = inventory else {
        return Vec::new();
    };
    let containers = running(None).into_iter();
    containers
        .flat_map(|located| of(&located, &inventory.driver_version))
        .collect()
}

/// Counts the containers of root's engines.
pub(super) fn fact() -> String {
    format!("{} running", running(None).len())
}

/// Returns at most one finding of a kind for a container.
fn of(located: &Located, driver: &str) -> Vec<Finding> {
    let processes = processes_of(located).unwrap_or_default();
    let name = located.known().name;
    let name = name.unwrap_or_else(|| located.container.id().to_owned());
    let libcuda = processes.iter().find_map(|one| libcuda(&name, one, driver));
    let confined = processes.iter().find_map(|one| confined(&name, one));
    libcuda.into_iter().chain(confined).collect()
}

fn processes_of(located: &Located) -> io::Result<Vec<Process>> {
    let candidates = located.container.snapshot()?.into_candidates();
    let look = |process: &ProcessRef| Process {
        libcuda: process.libcuda_version().ok().flatten(),
        profile: process.enforced_profile().ok().flatten(),
    };
    Ok(within(LIMIT, move || {
        candidates.iter().map(look).collect()
    })?)
}

/// Warns if a container's libcuda is not the host's: its image brings one, or a driver that has
/// been replaced since is still in use.
fn libcuda(name: &str, process: &Process, driver: &str) -> Option<Finding> {
    let version = process.libcuda.as_ref()?;
    (version != driver).then(|| {
        warning(
            "container-libcuda",
            format!("{name} uses libcuda {version}, and the driver is {driver}"),
            "restart it with the host's libraries, not with those of its image",
        )
    })
}

/// Warns of AppArmor, as of SELinux: stasis was not tried with it, and CRIU gives a restored
/// process the profile that it had, which has to be loaded.
fn confined(name: &str, process: &Process) -> Option<Finding> {
    let profile = process.profile.as_ref()?;
    Some(warning(
        "apparmor",
        format!(
            "{name} is confined by AppArmor's profile {profile}, with which stasis was not tried"
        ),
        "try it first; load the profile wherever the image is restored",
    ))
}
