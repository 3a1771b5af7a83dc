//! What running containers have of the driver.

use std::io;
use std::time::Duration;

use super::warning;
use crate::cli::locate::{Located, running};
use crate::cli::machine::Finding;
use crate::host::deadline::within;

/// A process whose memory map the kernel does not show keeps nobody waiting longer.
const LIMIT: Duration = Duration::from_secs(10);

/// The libcuda of a container is the host's, unless its image brings one, or a driver that has been
/// replaced since is still in use.
pub(super) fn findings(driver: Option<&str>) -> Vec<Finding> {
    let Some(driver) = driver else {
        return Vec::new();
    };
    let containers = running(None).into_iter();
    let other = |located: Located| {
        let mut versions = libcuda_of(&located).unwrap_or_default().into_iter();
        let version = versions.find(|version| version != driver)?;
        Some(of_another_version(&located, &version, driver))
    };
    containers.filter_map(other).collect()
}

/// The versions that its processes have. What ends meanwhile has none.
fn libcuda_of(located: &Located) -> io::Result<Vec<String>> {
    let processes = located.container.snapshot()?.into_candidates();
    let versions = within(LIMIT, move || {
        let versions = processes.iter().map(|process| process.libcuda_version());
        versions
            .filter_map(|version| version.ok().flatten())
            .collect()
    });
    Ok(versions?)
}

fn of_another_version(located: &Located, version: &str, driver: &str) -> Finding {
    let name = located.known().name;
    let name = name.unwrap_or_else(|| located.container.id().to_owned());
    warning(
        "container-libcuda",
        format!("{name} uses libcuda {version}, and the driver is {driver}"),
        "start it anew, with the host's libraries and not with those of its image",
    )
}
