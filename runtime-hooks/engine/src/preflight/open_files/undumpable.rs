//! Files and objects of a process that CRIU dumps only if it is asked to, or never, by its own
//! rules (criu/files.c `dump_one_file`, criu/files-reg.c `check_path_remap`). Doubtful ones, and
//! those that cannot be looked at, are left to CRIU.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{
    MemfdFlags, Mode, OFlags, ResolveFlags, fstat, memfd_create, open, openat2, statfs,
};
use rustix::io::Errno;
use stasis_linux::memory_file;
use stasis_linux::procfs::{Mapping, held_file, mapped_file, value_in_fdinfo};

use super::watches::INOTIFY;
use super::{How, OpenFile};

/// Names that begin so have no handler in CRIU, of whatever version and build.
const NEVER: [&str; 8] = [
    "anon_inode:[userfaultfd]",
    "anon_inode:[perf_event]",
    "anon_inode:bpf-prog",
    "anon_inode:bpf_link",
    "anon_inode:btf",
    "anon_inode:kvm-",
    "anon_inode:[fscontext]",
    "anon_inode:seccomp notify",
];
/// CRIU has a handler for these if it was built with libbpf, but not for every type of them.
const BPF_MAP: &str = "anon_inode:bpf-map";
/// `BPF_MAP_TYPE_HASH` and `BPF_MAP_TYPE_ARRAY`, which it dumps then (criu/bpfmap.c).
const DUMPED_MAPS: [&[u8]; 2] = [b"1", b"2"];
/// memfd_secret(2). The name alone is no evidence.
const SECRET: &str = "/secretmem (deleted)";
const DELETED: &str = " (deleted)";
/// The kernel's file systems without a mount (linux/magic.h): CRIU has to find the mount of every
/// file with a path.
const SECRETMEM_MAGIC: i64 = 0x5345_434d;
const MQUEUE_MAGIC: i64 = 0x1980_0202;
/// The unit of `st_blocks` (stat(2)).
const BLOCK: u64 = 512;
/// The files without a name that are looked at: a process may map as many as it likes, and one that
/// is too large is enough.
const MOST_DELETED: usize = 4096;

/// The undumpable objects of one process; the first of each kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Undumpable {
    /// An object of the kernel.
    pub(crate) object: Option<OpenFile>,
    /// A POSIX message queue.
    pub(crate) queue: Option<OpenFile>,
    /// The largest file without a name, with its size in bytes.
    pub(crate) deleted: Option<(OpenFile, u64)>,
    /// A file that is no longer at its path, and has another.
    pub(crate) moved: Option<OpenFile>,
    /// Its descriptors of inotify.
    pub(crate) watches: Vec<u32>,
    /// The deleted files that were looked at, by device and inode as `maps` has them.
    seen: HashSet<(Vec<u8>, u64)>,
}

/// A user has 128 instances of inotify by default (inotify(7)).
const MOST_WATCHES: usize = 128;

impl Undumpable {
    /// Looks at a descriptor, whose target is `path`.
    pub(super) fn see_descriptor(&mut self, pid: i32, number: u32, path: &str) {
        let file = || OpenFile {
            path: path.to_owned(),
            how: How::Descriptor(number),
        };
        let held = || held_file(pid, number);
        let is_other_map = || path.starts_with(BPF_MAP) && !is_dumped_map(pid, number);
        if is_object(path) || is_other_map() || path == SECRET && is_on(&held(), SECRETMEM_MAGIC) {
            self.object.get_or_insert_with(file);
        } else if is_at_top(path) && is_on(&held(), MQUEUE_MAGIC) {
            self.queue.get_or_insert_with(file);
        } else if path == INOTIFY && self.watches.len() < MOST_WATCHES {
            self.watches.push(number);
        } else if is_deleted(path) {
            self.see_deleted(pid, &held(), file());
        }
    }

    /// Looks at a mapping of the file `path`.
    pub(super) fn see_mapping(&mut self, pid: i32, mapping: &Mapping<'_>, path: &str) {
        let file = || OpenFile {
            path: path.to_owned(),
            how: How::Mapping,
        };
        let held = || mapped_file(pid, mapping);
        if is_object(path) || path == SECRET && is_on(&held(), SECRETMEM_MAGIC) {
            self.object.get_or_insert_with(file);
        } else if is_deleted(path)
            && self.seen.len() < MOST_DELETED
            && self.seen.insert((mapping.device.to_vec(), mapping.inode))
        {
            self.see_deleted(pid, &held(), file());
        }
    }

    /// CRIU writes a file without a name into the image. If a file has another name than the one it
    /// was opened by, CRIU makes a name only if asked to.
    fn see_deleted(&mut self, pid: i32, held: &Path, file: OpenFile) {
        let Some(found) = fs::metadata(held).ok().filter(Metadata::is_file) else {
            return;
        };
        if kernels_own().is_none_or(|own| own == found.dev()) {
            return;
        }
        if found.nlink() > 0 {
            // A file may be called "a (deleted)", and exist.
            if self.moved.is_none() && is_nowhere(pid, &file.path) {
                self.moved = Some(file);
            }
            return;
        }
        // CRIU before 4.0 goes by the size, and later ones by the blocks that exist.
        let bytes = found.size().min(found.blocks().saturating_mul(BLOCK));
        if self.deleted.as_ref().is_none_or(|(_, most)| *most < bytes) {
            self.deleted = Some((file, bytes));
        }
    }
}

fn is_object(path: &str) -> bool {
    NEVER.iter().any(|never| path.starts_with(never))
}

/// Whether CRIU dumps a map; `true` if it was closed meanwhile.
fn is_dumped_map(pid: i32, number: u32) -> bool {
    let kind = value_in_fdinfo(pid, number, "map_type").ok().flatten();
    kind.is_none_or(|kind| DUMPED_MAPS.contains(&kind.as_slice()))
}

/// Whether it is in the root of its file system, or of one without a mount, as a queue is.
fn is_at_top(path: &str) -> bool {
    let name = path.strip_prefix('/');
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// Whether the kernel names a file that was removed, or that has such a name. CRIU need not dump
/// the files that we have given to a process.
fn is_deleted(path: &str) -> bool {
    let Some(name) = path.strip_suffix(DELETED).filter(|_| path.starts_with('/')) else {
        return false;
    };
    let name = name.rsplit('/').next().unwrap_or_default();
    name != memory_file::NAME && !name.starts_with(memory_file::PACK_PREFIX)
}

/// Whether a process finds nothing by this path.
fn is_nowhere(pid: i32, path: &str) -> bool {
    let looked = || {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = open(format!("/proc/{pid}/root"), flags, Mode::empty())?;
        let (flags, resolve) = (flags | OFlags::NOFOLLOW, ResolveFlags::IN_ROOT);
        openat2(root, path, flags, Mode::empty(), resolve)
    };
    matches!(looked(), Err(Errno::NOENT))
}

/// Whether a file is on the kernel's file system of this kind; not if it is gone.
fn is_on(held: &Path, magic: i64) -> bool {
    statfs(held).is_ok_and(|found| found.f_type == magic)
}

/// Returns the device of files that the kernel makes for memory: memfd_create(2), shared memory
/// without a file, and that of System V. CRIU dumps it as memory.
fn kernels_own() -> Option<u64> {
    let file = memfd_create("stasis-device", MemfdFlags::CLOEXEC).ok()?;
    Some(fstat(file).ok()?.st_dev)
}

#[cfg(test)]
mod tests;
