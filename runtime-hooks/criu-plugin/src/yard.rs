//! What CRIU mounts for the time of a restore, and takes away only if it comes to its end.

use std::fs;

use nix::mount::{MntFlags, umount2};

/// Where it sees all cgroups, in its work directory, which it is in (criu/cgroup.c).
const YARD: &str = ".criu.cgyard.";

/// Takes it away before CRIU ends in the middle.
pub(crate) fn clear() {
    for entry in fs::read_dir(".").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(YARD) {
            let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
            let _ = umount2(&entry.path(), flags);
            let _ = fs::remove_dir(entry.path());
        }
    }
}
