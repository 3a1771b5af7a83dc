//! Gives a file in memory its pages before anybody waits for them.

#![allow(unsafe_code)] // FFI: mmap(2), madvise(2), munmap(2)

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// What a thread does at a time: the kernel clears it in some 20 ms.
const PIECE: u64 = 64 << 20;

/// Gives the first `bytes` of a file in memory their pages, which takes 2 ms for each GiB where
/// they are huge: they are not cleared before somebody touches them ([`clear`]).
///
/// They are charged to the memory cgroup of the process that calls this, and to nobody who maps or
/// touches them later (Linux, Documentation/admin-guide/cgroup-v2.rst, "Memory Ownership"; tmpfs
/// clears a page of fallocate(2) at its first use: `shmem_get_folio_gfp` in mm/shmem.c).
///
/// # Errors
/// Those of fallocate(2): ENOSPC where the file system is full; no page is kept then.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), 0, bytes)?)
}

/// Has so many threads clear the first `bytes` of a file that has its pages ([`allocate`]). Where
/// that fails nobody clears them: who touches a page waits for it.
///
/// # Errors
/// Those of mmap(2) and of madvise(2) with MADV_POPULATE_WRITE: EINVAL before Linux 5.14, EFAULT
/// where the file ends, or a page without memory gets none.
pub fn clear(file: &File, bytes: u64, threads: NonZeroUsize) -> io::Result<()> {
    let mapping = Mapping::of(file, bytes)?;
    let next = AtomicU64::new(0);
    let work = || -> io::Result<()> {
        loop {
            let start = next.fetch_add(PIECE, Ordering::Relaxed);
            if start >= bytes {
                return Ok(());
            }
            let touched = mapping.touch(start..bytes.min(start.saturating_add(PIECE)));
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

/// One mapping for all threads: while pages are touched nobody of the process can map or unmap
/// (`mmap_lock`), so with a mapping for each piece the threads would wait for each other.
struct Mapping {
    address: NonNull<c_void>,
    length: usize,
}

// SAFETY: nothing is read or written through the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: &File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing here reads or
        // writes it.
        let address = unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED, file, 0)? };
        let address = NonNull::new(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { address, length })
    }

    /// `range` lies inside of the mapping.
    fn touch(&self, range: Range<u64>) -> io::Result<()> {
        let start = usize::try_from(range.start).map_err(io::Error::other)?;
        let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let address = self.address.as_ptr().wrapping_byte_add(start);
        // SAFETY: the range is that of a mapping that nobody else knows; the advice changes no
        // contents, and reports what would be SIGBUS as an error.
        unsafe { madvise(address, length, Advice::LinuxPopulateWrite)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping, and nothing points into it.
        let _ = unsafe { munmap(self.address.as_ptr(), self.length) };
    }
}
