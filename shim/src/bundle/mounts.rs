//! The mounts below a directory.
//!
//! Before a directory is removed recursively, everything that is mounted in it must be unmounted,
//! or the removal deletes the files of those file systems. A restore that was killed leaves such
//! mounts: CRIU mounts cgroups in its work directory (criu/cgroup.c), and crun mounts the root file
//! system in the bundle (src/libcrun/criu.c).

use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use stasis_linux::mountinfo::{self, Mount};

use crate::error::{Error, Result};

/// The time for which a busy mount is tried again; containerd gives a dead shim's `delete` 5 s.
const BUSY: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// Unmounts everything below a directory, which may take [`BUSY`]. A directory that does not exist
/// has no mounts.
pub(super) fn unmount_below(directory: &Path) -> Result<()> {
    // The paths in the mount table have no symbolic links.
    let directory = match directory.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(Error::cannot(format!("find {}", directory.display())))?,
    };
    let table = mountinfo::mounts().map_err(Error::cannot("read the mount table"))?;
    let deadline = Instant::now() + BUSY;
    for point in points_below(&table, &directory) {
        unmount_one(point, deadline)
            .map_err(Error::cannot(format!("unmount {}", point.display())))?;
    }
    Ok(())
}

/// Unmounts, and detaches a mount only if it is still in use at the deadline: a detached mount
/// remains for its users, when its snapshot may already be removed.
fn unmount_one(point: &Path, deadline: Instant) -> rustix::io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    loop {
        match unmount(point, flags) {
            // Already unmounted, with a mount above it or by another process.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => sleep(POLL),
            Err(Errno::BUSY) if !flags.contains(UnmountFlags::DETACH) => {
                log::warn!("{} is in use, and is detached", point.display());
                flags |= UnmountFlags::DETACH;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The mount points below a directory, the latest first.
fn points_below<'m>(table: &'m [Mount], directory: &Path) -> Vec<&'m Path> {
    let points = table.iter().rev().map(|mount| mount.point.as_path());
    let below = points.filter(|point| point.starts_with(directory) && *point != directory);
    below.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_directory_are_found_latest_first() {
        let table = b"\
            22 1 0:21 / /run rw - tmpfs tmpfs rw\n\
            31 22 0:30 / /run/b/c1 rw - tmpfs tmpfs rw\n\
            32 31 0:31 / /run/b/c1/rootfs rw - overlay overlay rw\n\
            33 31 0:32 / /run/b/c10/rootfs rw - overlay overlay rw\n\
            34 32 0:33 / /run/b/c1/rootfs/a\\040b rw - tmpfs tmpfs rw\n\
            35 32 0:31 / /run/b/c1/rootfs rw - overlay overlay rw\n";
        assert_eq!(
            points_below(&mountinfo::parse(table), Path::new("/run/b/c1")),
            ["rootfs", "rootfs/a b", "rootfs"].map(|name| Path::new("/run/b/c1").join(name))
        );
    }

    #[test]
    fn a_directory_that_does_not_exist_has_no_mount() {
        unmount_below(Path::new("/nonexistent/bundle")).unwrap();
    }
}
