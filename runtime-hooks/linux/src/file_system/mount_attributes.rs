//! mount_setattr(2): what holds for all that is done through a mount.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;

/// `MOUNT_ATTR_RDONLY` (linux/mount.h).
const READ_ONLY: u64 = 0x0000_0001;
/// `MOUNT_ATTR_IDMAP` (linux/mount.h).
const IDMAP: u64 = 0x0010_0000;

/// `struct mount_attr` (linux/mount.h), version 0.
#[derive(Default)]
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Maps the owners of the files of a mount that is not attached yet, as open_tree(2) makes it.
///
/// # Errors
/// The error of mount_setattr(2): the kernel is older than 5.12 (ENOSYS), or the file system cannot
/// be mapped (EINVAL).
pub fn idmap(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let number = u64::try_from(user_namespace.as_raw_fd()).map_err(io::Error::other)?;
    let attributes = MountAttr {
        set: IDMAP,
        user_namespace: number,
        ..MountAttr::default()
    };
    set(mount, &attributes)
}

/// Makes a mount read-only for all processes.
///
/// # Errors
/// The error of mount_setattr(2); EBUSY: a process has a file open for writing through it, or a
/// mapping that was made by such a process.
pub(super) fn make_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = MountAttr {
        set: READ_ONLY,
        ..MountAttr::default()
    };
    set(mount, &attributes)
}

fn set(mount: BorrowedFd<'_>, attributes: &MountAttr) -> io::Result<()> {
    // SAFETY: the kernel reads an empty string and as many bytes of `attributes` as its size says,
    // both of which live until it returns, and writes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const *attributes,
            size_of::<MountAttr>(),
        )
    };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_is_no_mount_is_refused() {
        let file = File::open("/proc/self/ns/user").unwrap();
        assert!(idmap(file.as_fd(), file.as_fd()).is_err());
        assert!(make_read_only(file.as_fd()).is_err());
    }
}
