//! The watches of a process by inotify(7). CRIU asks the kernel for each file's handle, opens that
//! to find the path, and otherwise looks for the inode in a few directories (criu/fsnotify.c
//! `check_open_handle`, criu/irmap.c). The handles of an overlay cannot be opened unless it was
//! mounted with `nfs_export` (fs/overlayfs/export.c).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, major, minor, openat2, statat};
use stasis_linux::ProcessRef;
use stasis_linux::mountinfo::{Device, mounts_of};
use stasis_linux::procfs::fdinfo;

use crate::container::inside::{names_in, root_of};

/// The kernel's name of a descriptor of inotify.
pub(super) const INOTIFY: &str = "anon_inode:inotify";
/// The directories in which CRIU looks (criu/irmap.c, `hints`).
const SEARCHED: [&str; 8] = [
    "/etc",
    "/var/spool",
    "/var/log",
    "/usr/share/dbus-1/services",
    "/usr/share/dbus-1/system-services",
    "/var/lib/polkit-1/localauthority",
    "/usr/share/polkit-1/actions",
    "/lib/udev",
];
/// The number of files that are looked at; a container with more is left to CRIU.
const MOST_FILES: usize = 100_000;

/// A file that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Watched {
    device: Device,
    inode: u64,
}

/// Returns the first of these descriptors that watches a file that CRIU does not find.
///
/// # Errors
/// The process's mounts or descriptors cannot be read.
pub(crate) fn not_found(process: &ProcessRef, descriptors: &[u32]) -> io::Result<Option<u32>> {
    if descriptors.is_empty() {
        return Ok(None);
    }
    let without_handles: BTreeSet<Device> = mounts_of(process.pid())?
        .into_iter()
        .filter(|mount| mount.kind == b"overlay" && !mount.has_option(b"nfs_export=on"))
        .map(|mount| mount.device)
        .collect();
    for number in descriptors {
        let text = fdinfo(process.pid(), *number)?.unwrap_or_default();
        let mut wanted: BTreeSet<Watched> = watched(&text)
            .filter(|watched| without_handles.contains(&watched.device))
            .collect();
        if !wanted.is_empty() && !are_found(process, &mut wanted) {
            return Ok(Some(*number));
        }
    }
    Ok(None)
}

/// Parses "inotify wd:1 ino:2a sdev:fd00001 mask:..." (proc_pid_fdinfo(5)): the kernel's own number
/// of a device, in which the minor one has 20 bits.
fn watched(fdinfo: &[u8]) -> impl Iterator<Item = Watched> {
    let lines = fdinfo.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let text = std::str::from_utf8(line.strip_prefix(b"inotify ")?).ok()?;
        let value = |name: &str| {
            let mut words = text.split(' ');
            let value = words.find_map(|word| word.strip_prefix(name))?;
            u64::from_str_radix(value, 16).ok()
        };
        let device = value("sdev:")?;
        Some(Watched {
            device: Device {
                major: u32::try_from(device >> 20).ok()?,
                minor: u32::try_from(device & 0xf_ffff).ok()?,
            },
            inode: value("ino:")?,
        })
    })
}

/// Whether CRIU finds all of them, or that is unknown: files that cannot be read are left to it.
fn are_found(process: &ProcessRef, wanted: &mut BTreeSet<Watched>) -> bool {
    let Ok(root) = root_of(process) else {
        return true;
    };
    let mut next: Vec<PathBuf> = SEARCHED.map(PathBuf::from).into();
    let mut left = MOST_FILES;
    find(&root, Path::new("/"), wanted);
    while let Some(path) = next.pop() {
        if wanted.is_empty() || left == 0 {
            return true;
        }
        left -= 1;
        if find(&root, &path, wanted) == Some(Kind::Directory) {
            let names = names_in(&root, &path).unwrap_or_default();
            let below = names.into_iter().filter(|name| name != "." && name != "..");
            next.extend(below.map(|name| path.join(name)));
        }
    }
    wanted.is_empty()
}

#[derive(PartialEq, Eq)]
enum Kind {
    Directory,
    Other,
}

/// Looks at a path, and opens nothing that acts when it is opened.
fn find(root: &OwnedFd, path: &Path, wanted: &mut BTreeSet<Watched>) -> Option<Kind> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Another file system may have a server that never answers.
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let file = openat2(root.as_fd(), path, flags, Mode::empty(), resolve).ok()?;
    let found = statat(&file, "", AtFlags::EMPTY_PATH).ok()?;
    wanted.remove(&Watched {
        device: Device {
            major: major(found.st_dev),
            minor: minor(found.st_dev),
        },
        inode: found.st_ino,
    });
    let is_directory = found.st_mode & 0o170_000 == 0o040_000;
    Some(if is_directory {
        Kind::Directory
    } else {
        Kind::Other
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_is_read() {
        let text = b"pos:\t0\nflags:\t02000000\nmnt_id:\t15\n\
            inotify wd:2 ino:7ef4 sdev:80000a mask:2 ignored_mask:0 fhandle-bytes:8 \
            fhandle-type:1 f_handle:f47e0000d83bd2b3\ninotify wd:x\n";
        let found: Vec<_> = watched(text).collect();
        let device = Device {
            major: 8,
            minor: 10,
        };
        assert_eq!(
            found,
            [Watched {
                device,
                inode: 0x7ef4
            }]
        );
    }
}
