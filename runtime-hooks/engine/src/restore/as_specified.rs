//! Adapts restored processes to the new container, as far as possible: sets its host name, and
//! checks that every mount of its specification exists.
//!
//! runc itself takes from the new specification at a restore: the cgroup with its limits and device
//! rules, the network namespace, and the sources of bind mounts. From the image remain: arguments,
//! environment, user, capabilities and filters of the processes.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use stasis_linux::mountinfo::mounts_of;
use stasis_linux::process::host_name::set_host_name;

use crate::container::Container;
use crate::container::spec::Spec;
use crate::error::hold::HoldError;

/// Sets the host name, and compares the mounts. Nothing of the container runs yet.
pub(crate) fn adapt(container: &Container, bundle: &Path) -> Result<(), HoldError> {
    let failed = |action| move |source| HoldError::Io { action, source };
    let spec = Spec::read(bundle).map_err(io::Error::other);
    let spec = spec.map_err(failed("read the specification"))?;
    let init = container.init().pid();
    let table = mounts_of(init).map_err(failed("see the mounts"))?;
    let there: BTreeSet<PathBuf> = table.into_iter().map(|mount| mount.point).collect();
    for mount in spec.mount_points() {
        if !there.contains(&mount) {
            return Err(HoldError::Mount(mount));
        }
    }
    match spec.host_name() {
        Some(name) => set_host_name(init, name).map_err(failed("set the host name")),
        None => Ok(()),
    }
}
