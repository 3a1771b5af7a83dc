//! Allocates and clears the pages of a file in memory before a process waits for them.

#![allow(unsafe_code)] // FFI: mmap(2), madvise(2), munmap(2)

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Bytes that a thread touches at a time: the kernel clears them in some 5 ms.
const PIECE: u64 = 16 << 20;

/// Allocates the pages of the first `bytes` of a file in memory, which takes 2 ms for each GiB of
/// huge pages: the kernel clears a page at its first use ([`Clearing`]).
///
/// The kernel charges the pages to the memory cgroup of the calling process, and to no process that
/// maps or touches them later (Linux, Documentation/admin-guide/cgroup-v2.rst, "Memory Ownership";
/// tmpfs clears a page of fallocate(2) at its first use: `shmem_get_folio_gfp` in mm/shmem.c).
///
/// # Errors
/// Errors of fallocate(2): ENOSPC where the file system is full; no page is kept then.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), 0, bytes)?)
}

/// Threads that clear the pages of a file ([`allocate`]) from its start on, also while it is used.
/// A process that touches an uncleared page waits for the kernel to clear it: nothing depends on
/// the threads. When this is dropped they stop, within some 5 ms, and the file is unmapped.
#[derive(Debug)]
pub struct Clearing {
    work: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
    /// Receives nothing; disconnected once all threads have ended.
    end: Receiver<()>,
}

#[derive(Debug)]
struct Work {
    mapping: Mapping,
    next: AtomicU64,
    /// Threads with this number and higher ones end.
    most: AtomicUsize,
}

impl Clearing {
    /// Starts `threads` threads for the first `bytes` of the file.
    ///
    /// # Errors
    /// Errors of mmap(2) and of starting a thread.
    pub fn start(file: &File, bytes: u64, threads: NonZeroUsize) -> io::Result<Self> {
        let work = Arc::new(Work {
            mapping: Mapping::of(file, bytes)?,
            next: AtomicU64::new(0),
            most: AtomicUsize::new(usize::MAX),
        });
        let (lives, end) = mpsc::channel();
        let mut clearing = Self {
            work,
            threads: Vec::new(),
            end,
        };
        for number in 0..threads.get() {
            let (work, lives) = (Arc::clone(&clearing.work), lives.clone());
            let thread = Builder::new().spawn(move || {
                work.touch_all(number);
                drop::<Sender<()>>(lives);
            })?;
            clearing.threads.push(thread);
        }
        Ok(clearing)
    }

    /// Returns whether all threads end within this time: no page is left, or clearing failed.
    pub fn ends_within(&self, limit: Duration) -> bool {
        self.end.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }

    /// Ends all threads but this many.
    pub fn limit_threads(&self, threads: usize) {
        self.work.most.store(threads, Ordering::Relaxed);
    }

    /// Returns the number of threads that still clear.
    pub fn threads(&self) -> usize {
        let going_on = |thread: &&JoinHandle<()>| !thread.is_finished();
        self.threads.iter().filter(going_on).count()
    }
}

impl Drop for Clearing {
    fn drop(&mut self) {
        self.limit_threads(0);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Work {
    /// Touches pieces until none is left. An error ends all threads: before Linux 5.14 there is no
    /// MADV_POPULATE_WRITE, and a file that was truncated meanwhile has no pages there.
    fn touch_all(&self, number: usize) {
        let end = self.mapping.length as u64;
        while number < self.most.load(Ordering::Relaxed) {
            let start = self.next.fetch_add(PIECE, Ordering::Relaxed);
            if start >= end {
                return;
            }
            let range = start..end.min(start.saturating_add(PIECE));
            if self.mapping.touch(range).is_err() {
                self.most.store(0, Ordering::Relaxed);
            }
        }
    }
}

/// One mapping for all threads: while pages are touched no thread of the process can map or unmap
/// (`mmap_lock`), so with a mapping for each piece the threads would wait for each other.
#[derive(Debug)]
struct Mapping {
    address: NonNull<c_void>,
    length: usize,
}

// SAFETY: nothing is read or written through the address.
unsafe impl Send for Mapping {}
// SAFETY: as above.
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
        // SAFETY: the range belongs to a mapping that no other code knows; the advice changes no
        // contents, and reports an error in place of SIGBUS.
        unsafe { madvise(address, length, Advice::LinuxPopulateWrite)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping's, and nothing points into it.
        let _ = unsafe { munmap(self.address.as_ptr(), self.length) };
    }
}
