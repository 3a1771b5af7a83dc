//! The libcuda of a container is the host's, unless its image brings one, or a driver that has been
//! replaced since is still in use.

use super::Process;
use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;

pub(super) fn finding(name: &str, process: &Process, driver: &str) -> Option<Finding> {
    let version = process.libcuda.as_ref()?;
    (version != driver).then(|| {
        warning(
            "container-libcuda",
            format!("{name} uses libcuda {version}, and the driver is {driver}"),
            "start it anew, with the host's libraries and not with those of its image",
        )
    })
}
