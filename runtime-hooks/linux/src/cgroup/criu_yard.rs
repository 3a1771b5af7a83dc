//! CRIU's "cgroup yard": mounts of all cgroup hierarchies in CRIU's work directory, which CRIU
//! makes for a restore and removes only if it gets to its end (criu/cgroup.c).

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};

/// How the names of the directories begin.
const PREFIX: &[u8] = b".criu.cgyard.";

/// Unmounts and removes the yards in CRIU's work directory, of a CRIU that was killed or is about
/// to be ended.
pub fn clear(work: &Path) {
    for entry in fs::read_dir(work).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(PREFIX) {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            let _ = unmount(entry.path(), flags);
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yards_go_and_everything_else_stays() {
        let work = tempfile::tempdir().unwrap();
        for name in [".criu.cgyard.abc", "criu.cgyard", "restore.log.d"] {
            fs::create_dir(work.path().join(name)).unwrap();
        }
        clear(work.path());
        assert!(!work.path().join(".criu.cgyard.abc").exists());
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 2);
        clear(&work.path().join("nonexistent"));
    }
}
