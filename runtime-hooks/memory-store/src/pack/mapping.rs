//! Maps files in memory, which saves copying them: packs, and contents that are stored into packs.

#![allow(unsafe_code)] // memmap2: the mapping of a file, which others could change

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use memmap2::{Mmap, MmapMut, MmapOptions};
use rustix::fs::{FsWord, fstatfs};

/// linux/magic.h
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// Whether a file or directory is on a tmpfs; false if that cannot be found out.
#[must_use]
pub fn is_in_memory(opened: impl AsFd) -> bool {
    fstatfs(opened).is_ok_and(|system| system.f_type == TMPFS_MAGIC)
}

/// Maps a file of a tmpfs. `None`: it is on another file system, or cannot be mapped.
pub(crate) fn map(file: &File) -> Option<Mmap> {
    if !is_in_memory(file) {
        return None;
    }
    // SAFETY: only packs in a store's own directory are mapped. Only root may enter it, and packs
    // are not changed once they are written: a container has them through a mount that is read-only
    // ([`crate::Reader::to_map`], [`crate::mount_for_packs`]). If root truncates one all the same,
    // reading it ends CRIU with SIGBUS, and the tasks that wait for it end with CRIU.
    unsafe { Mmap::map(file) }.ok()
}

/// Maps a part of a file, which has all of it, for reading.
pub(crate) fn map_part(file: &File, offset: u64, bytes: u64) -> io::Result<Mmap> {
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: callers that store contents ensure that no process writes to the file meanwhile, nor
    // makes it shorter ([`Writer::store_coming`](crate::Writer::store_coming)): the driver has
    // locked its process. A process that writes all the same, through a descriptor that it has
    // found in `/proc`, spoils its own image, whose checksums do not match then; a process that
    // cuts the file ends the process that stores it, and so its own checkpoint.
    unsafe { MmapOptions::new().offset(offset).len(bytes).map(file) }
}

/// Maps a part of a new file, which has all of it, for writing: write(2) locks a file, so that only
/// one thread at a time proceeds.
pub(crate) fn map_part_to_write(file: &File, offset: u64, bytes: u64) -> io::Result<MmapMut> {
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: the file is new, and callers that load contents give it to no process, nor make it
    // shorter, before that is over ([`Reader::load_files`](crate::Reader::load_files)).
    unsafe { MmapOptions::new().offset(offset).len(bytes).map_mut(file) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_in_memory_is_mapped() {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all(b"pack").unwrap();
        assert_eq!(&map(&file).unwrap()[..], b"pack");
    }

    #[test]
    fn what_is_elsewhere_is_not() {
        let elsewhere = File::open("/proc/self/status").unwrap();
        assert!(map(&elsewhere).is_none());
    }
}
