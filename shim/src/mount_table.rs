//! What is mounted below a directory.
//!
//! A directory that is removed with all it holds must have no mount in it: the files of whatever is
//! mounted there would be removed. A restore that was killed leaves such mounts: CRIU mounts cgroups
//! in its work directory (criu/cgroup.c), and crun the root file system in the bundle
//! (src/libcrun/criu.c).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::cgroup::unescape;
use crate::error::{Error, Result};

/// Unmounts everything below a directory, which need not be there.
pub(crate) fn unmount_below(directory: &Path) -> Result<()> {
    // The kernel's table knows no symbolic links.
    let directory = match directory.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(Error::io(format!("find {}", directory.display())))?,
    };
    let table = fs::read("/proc/self/mountinfo").map_err(Error::io("read the mount table"))?;
    // Some other mount may have a name that is not UTF-8.
    for point in points_below(&String::from_utf8_lossy(&table), &directory) {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        match unmount(&point, flags) {
            // Taken away with one above it, or by somebody else.
            Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(Error::io(format!("unmount {}", point.display()))(error)),
        }
    }
    Ok(())
}

/// The mount points below a directory in the text of `/proc/self/mountinfo`, the latest first.
fn points_below(mountinfo: &str, directory: &Path) -> Vec<PathBuf> {
    // "36 35 98:0 /root /point ..." (proc_pid_mountinfo(5))
    let points = mountinfo.lines().rev().filter_map(|line| {
        let point = line.split(' ').nth(4)?;
        Some(unescape(point))
    });
    let below = points.filter(|point| point.starts_with(directory) && point != directory);
    below.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_directory_are_found_latest_first() {
        let table = "\
            22 1 0:21 / /run rw - tmpfs tmpfs rw\n\
            31 22 0:30 / /run/b/c1 rw - tmpfs tmpfs rw\n\
            32 31 0:31 / /run/b/c1/rootfs rw - overlay overlay rw\n\
            33 31 0:32 / /run/b/c10/rootfs rw - overlay overlay rw\n\
            34 32 0:33 / /run/b/c1/rootfs/a\\040b rw - tmpfs tmpfs rw\n\
            35 32 0:31 / /run/b/c1/rootfs rw - overlay overlay rw\n";
        assert_eq!(
            points_below(table, Path::new("/run/b/c1")),
            ["rootfs", "rootfs/a b", "rootfs"].map(|name| Path::new("/run/b/c1").join(name))
        );
    }

    #[test]
    fn a_directory_that_is_not_there_holds_no_mount() {
        unmount_below(Path::new("/nonexistent/bundle")).unwrap();
    }
}
