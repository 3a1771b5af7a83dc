//! Gives the pages of a file in memory their memory before anybody waits for it.

#![allow(unsafe_code)] // FFI: mmap(2), madvise(2), munmap(2)

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// What a thread does at a time: the kernel clears it in some 20 ms.
const PIECE: u64 = 64 << 20;

/// Has so many threads touch the first `bytes` of a file in memory.
///
/// The pages are charged to the memory cgroup of the process that calls this, and to nobody who
/// maps them later (Linux, Documentation/admin-guide/cgroup-v2.rst, "Memory Ownership").
///
/// # Errors
/// Those of mmap(2) and of madvise(2) with MADV_POPULATE_WRITE: EINVAL before Linux 5.14, EFAULT
/// where the file system is full or the file ends.
pub fn populate(file: &File, bytes: u64, threads: NonZeroUsize) -> io::Result<()> {
    let next = AtomicU64::new(0);
    let work = || -> io::Result<()> {
        loop {
            let start = next.fetch_add(PIECE, Ordering::Relaxed);
            if start >= bytes {
                return Ok(());
            }
            let end = bytes.min(start.saturating_add(PIECE));
            let touched = touch(file, start..end);
            if touched.is_err() {
                // The others need not go on.
                next.store(bytes, Ordering::Relaxed);
                return touched;
            }
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads.get()).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().fold(own, |result, other| {
            let other = other
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            result.and(other)
        })
    })
}

fn touch(file: &File, range: Range<u64>) -> io::Result<()> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses; nothing here reads or writes it.
    let address = unsafe {
        mmap(
            null_mut(),
            length,
            protection,
            MapFlags::SHARED,
            file,
            range.start,
        )?
    };
    // SAFETY: the range is that of the mapping, which nobody else knows; the advice changes no
    // contents, and reports what would be SIGBUS as an error.
    let populated = unsafe { madvise(address, length, Advice::LinuxPopulateWrite) };
    // SAFETY: as above, and nothing points into it.
    unsafe { munmap(address, length)? };
    Ok(populated?)
}
