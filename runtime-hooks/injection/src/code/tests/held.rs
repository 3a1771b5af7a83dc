//! Memory of which some pages are missing: a thread that reads one waits until the test gives it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

use nix::libc;

use super::loaded;

pub(super) const PAGE: usize = 4096;

// linux/userfaultfd.h
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_THREAD_ID: u64 = 1 << 8;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;

/// Bytes of which some pages are missing.
pub(super) struct Held<'b> {
    bytes: &'b [u8],
    missing: Vec<usize>,
    memory: *mut u8,
    faults: File,
}

// SAFETY: the memory is the process's, and any thread may use the descriptor.
unsafe impl Sync for Held<'_> {}

/// A thread that waits.
pub(super) struct Fault {
    /// For the page here.
    pub(super) offset: usize,
    pub(super) thread: i32,
}

impl<'b> Held<'b> {
    /// Holds the pages at these offsets.
    pub(super) fn new(bytes: &'b [u8], missing: &[usize]) -> Self {
        let length = bytes.len().next_multiple_of(PAGE);
        let memory = loaded::map(length);
        // SAFETY: the mapping is ours and as long. A huge page would fill the missing ones.
        unsafe { libc::madvise(memory.cast(), length, libc::MADV_NOHUGEPAGE) };
        for (index, page) in bytes.chunks(PAGE).enumerate() {
            if !missing.contains(&(index * PAGE)) {
                // SAFETY: as above.
                unsafe {
                    memory
                        .add(index * PAGE)
                        .copy_from_nonoverlapping(page.as_ptr(), page.len())
                };
            }
        }
        // SAFETY: the call gives a descriptor that no other code has.
        let faults = unsafe {
            let number = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            File::from_raw_fd(i32::try_from(number).unwrap())
        };
        let missing = missing.to_vec();
        let held = Self {
            bytes,
            missing,
            memory,
            faults,
        };
        held.ask(UFFDIO_API, &mut [UFFD_API, UFFD_FEATURE_THREAD_ID, 0])
            .unwrap();
        let (start, mode) = (memory as u64, UFFDIO_REGISTER_MODE_MISSING);
        held.ask(UFFDIO_REGISTER, &mut [start, length as u64, mode, 0])
            .unwrap();
        held
    }

    pub(super) fn source(&self) -> *const [u8] {
        std::ptr::slice_from_raw_parts(self.memory, self.bytes.len())
    }

    /// Returns the next thread that waits.
    pub(super) fn next(&self) -> Fault {
        let (fd, events) = (self.faults.as_raw_fd(), libc::POLLIN);
        let mut waiting = libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // SAFETY: one descriptor of ours. The time is for tests that fail.
        let came = unsafe { libc::poll(&raw mut waiting, 1, 20_000) };
        assert_eq!(came, 1, "nobody came");
        let mut event = [0; 32]; // struct uffd_msg
        (&self.faults).read_exact(&mut event).unwrap();
        let address = usize::from_ne_bytes(event[16..24].try_into().unwrap());
        Fault {
            offset: (address - self.memory.addr()) / PAGE * PAGE,
            thread: i32::from_ne_bytes(event[24..28].try_into().unwrap()),
        }
    }

    /// Gives a page to all that wait for it.
    pub(super) fn give(&self, offset: usize) {
        self.copy(offset).unwrap();
    }

    fn copy(&self, offset: usize) -> io::Result<()> {
        let to = self.memory as u64 + offset as u64;
        let from = self.bytes[offset..][..PAGE].as_ptr() as u64;
        self.ask(UFFDIO_COPY, &mut [to, from, PAGE as u64, 0, 0])
    }

    /// Ends all waits when the result is dropped, so that a test that fails also ends.
    pub(super) fn until_dropped(&self) -> impl Drop {
        Until(self)
    }

    fn ask<const WORDS: usize>(&self, request: u64, argument: &mut [u64; WORDS]) -> io::Result<()> {
        // SAFETY: the argument has the words that the request asks for.
        match unsafe { libc::ioctl(self.faults.as_raw_fd(), request, argument.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

struct Until<'h>(&'h Held<'h>);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        for offset in &self.0.missing {
            let _has_it = self.0.copy(*offset);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        loaded::unmap(self.memory, self.bytes.len().next_multiple_of(PAGE));
    }
}
