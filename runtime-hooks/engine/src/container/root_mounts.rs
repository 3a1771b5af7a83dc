//! The mounts below a container's root file system, as the machine sees them.
//!
//! For a restore runc mounts the container's bind mounts there for a moment, so that CRIU finds
//! their mount points (libcontainer/criu_linux.go, `prepareCriuRestoreMounts`). If runc is killed
//! then, they stay, and removing the root file system would remove the files mounted in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};
use serde::{Deserialize, Serialize};
use stasis_linux::mountinfo::{Mount, mounts};

use crate::container::spec::Spec;

/// The mounts that were there when they were looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RootMounts {
    root: PathBuf,
    /// Their numbers in the mount namespace.
    ids: BTreeSet<u64>,
}

impl RootMounts {
    /// Looks at them; `None` if the specification, or the table of mounts, cannot be read.
    pub(crate) fn now(bundle: &Path) -> Option<Self> {
        let spec = Spec::read(bundle).ok()?;
        // The table has no symbolic links.
        let root = fs::canonicalize(bundle.join(spec.root()?)).ok()?;
        let ids = mounts().ok()?.into_iter();
        let ids = ids.filter(|mount| is_below(mount, &root));
        let ids = ids.map(|mount| mount.id).collect();
        Some(Self { root, ids })
    }

    /// Unmounts those that have come since, the latest first.
    pub(crate) fn unmount_new(&self) {
        let now = mounts().unwrap_or_default();
        let is_new = |mount: &&Mount| is_below(mount, &self.root) && !self.ids.contains(&mount.id);
        for mount in now.iter().rev().filter(is_new) {
            let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
            // One in another may have gone with that.
            let _ = umount2(&mount.point, flags);
        }
    }
}

/// The root file system itself may be a mount, which is its caller's.
fn is_below(mount: &Mount, root: &Path) -> bool {
    mount.point != root && mount.point.starts_with(root)
}
