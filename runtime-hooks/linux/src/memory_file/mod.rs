//! A file in memory without a name, on a detached tmpfs of its own: the kernel frees it with its
//! last descriptor and its last mapping, in whichever process, and nothing has to be removed after
//! a crash.
//!
//! A tmpfs of its own, and not memfd_create(2): huge pages are an option of a mount there, so the
//! machine's setting for shared memory stays as it is (tmpfs(5)).

mod mark;
mod pages;
mod sealed;

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};

pub use mark::{is_marked, mark};
pub use pages::{Clearing, allocate};
pub use sealed::is_sealed;

/// The name that `/proc/PID/maps` shows for a mapping of it, after a slash and before " (deleted)".
pub const NAME: &str = "stasis-gpu-contents";
/// The start of the file name of a pack of the store. A pack in memory may be mapped like one of
/// our files, and `/proc/PID/maps` shows its name.
pub const PACK_PREFIX: &str = "stasis-memory-";
/// See [`PACK_PREFIX`].
pub const PACK_SUFFIX: &str = ".pack";
/// The size of a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;

/// Creates a file of this size, rounded up to whole huge pages. It has no pages yet ([`allocate`]),
/// and the kernel never swaps them out (from Linux 6.4 on).
///
/// # Errors
/// Errors of fsopen(2), fsconfig(2), fsmount(2) (EPERM without CAP_SYS_ADMIN; ENOSYS before Linux
/// 5.2) and open(2).
pub fn create(bytes: u64) -> io::Result<File> {
    let tmpfs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let size = bytes.next_multiple_of(HUGE_PAGE);
    fsconfig_set_string(&tmpfs, "size", size.to_string())?;
    fsconfig_set_string(&tmpfs, "mode", "0700")?;
    // A kernel without an option answers EINVAL, and the file is slower or may be swapped out.
    if_known(fsconfig_set_string(&tmpfs, "huge", "always"))?;
    if_known(fsconfig_set_flag(&tmpfs, "noswap"))?;
    fsconfig_create(&tmpfs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let root = fsmount(&tmpfs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let file = openat(
        &root,
        NAME,
        OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )?;
    unlinkat(&root, NAME, AtFlags::empty())?;
    let file = File::from(file);
    file.set_len(size)?;
    Ok(file)
}

fn if_known(set: Result<(), Errno>) -> io::Result<()> {
    match set {
        Err(Errno::INVAL) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
