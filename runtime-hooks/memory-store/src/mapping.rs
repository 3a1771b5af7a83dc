//! Packs in memory are read where they are: a copy less.

#![allow(unsafe_code)] // memmap2: the mapping of a file, which others could change

use std::fs::File;

use memmap2::Mmap;
use rustix::fs::{FsWord, fstatfs};

/// linux/magic.h
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// The contents of a file that is in memory anyway. `None`: it is elsewhere, or cannot be mapped.
pub(crate) fn map(file: &File) -> Option<Mmap> {
    if fstatfs(file).ok()?.f_type != TMPFS_MAGIC {
        return None;
    }
    // SAFETY: this is asked for in a store's own directory alone, which only root may look into; packs there are not changed once they
    // are written. Should somebody cut one off all the same, reading it ends CRIU, and the tasks that wait for it end with it.
    unsafe { Mmap::map(file) }.ok()
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
