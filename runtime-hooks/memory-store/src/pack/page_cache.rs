//! Asks whether a file is in the page cache, by cachestat(2) (Linux 6.5).
#![allow(unsafe_code)] // FFI: cachestat(2), which no crate has

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::libc;

use crate::PAGE;

/// The same number on all architectures.
const CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether most of a file is in the page cache. `None`: this kernel has no such call.
pub(crate) fn has_most_of(file: &File) -> Option<bool> {
    let length = file.metadata().ok()?.len();
    let range = Range { offset: 0, length };
    let mut counts = Counts::default();
    let flags: libc::c_uint = 0;
    // SAFETY: the pointers are of the types that the call has, and live as long as it.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            flags,
        )
    };
    (result == 0).then(|| counts.cached.saturating_mul(2 * PAGE as u64) > length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_in_the_cache() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &vec![1; 1 << 20]).unwrap();
        assert_ne!(has_most_of(&file), Some(false));
    }
}
