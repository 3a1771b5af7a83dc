//! A task's userfaultfd(2): a thread that touches a missing page waits until the page is there.

#![allow(unsafe_code)] // FFI: ioctls

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use stasis_memory_store::PAGE;
use stasis_remote_call::Proxy;

// linux/userfaultfd.h
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFD_API: u64 = 0xaa;
const REGISTER_MODE_MISSING: u64 = 1;
/// Allowed without privileges (Linux 5.11). System calls that touch a missing page then fail with
/// EFAULT instead of waiting.
const UFFD_USER_MODE_ONLY: u64 = 1;

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copy: i64,
}

/// For the memory of one process.
#[derive(Debug)]
pub(crate) struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// userfaultfd(2) covers the caller's own address space, so the proxy, which shares that of the
    /// task (CLONE_VM), makes it.
    pub(crate) fn of(proxy: &mut Proxy) -> io::Result<Self> {
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK).unsigned_abs().into();
        let theirs = match proxy.call(libc::SYS_userfaultfd, &[flags]) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                proxy.call(libc::SYS_userfaultfd, &[flags | UFFD_USER_MODE_ONLY])?
            }
            other => other?,
        };
        let own = Self(take_over(proxy.pid(), theirs)?);
        let mut api = Api {
            api: UFFD_API,
            features: 0,
            ioctls: 0,
        };
        own.ask(UFFDIO_API, &raw mut api)?;
        Ok(own)
    }

    /// From now on threads wait for missing pages there.
    pub(crate) fn protect(&self, start: u64, end: u64) -> io::Result<()> {
        let mut register = Register {
            range: Range {
                start,
                len: end - start,
            },
            mode: REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        self.ask(UFFDIO_REGISTER, &raw mut register)
    }

    /// Missing pages are zeros again, also for threads that wait.
    pub(crate) fn release(&self, start: u64, end: u64) -> io::Result<()> {
        let mut range = Range {
            start,
            len: end - start,
        };
        self.ask(UFFDIO_UNREGISTER, &raw mut range)
    }

    /// Gives missing pages their contents. What is not registered is not missing: it was never
    /// freed, or released again, or its process has ended.
    pub(crate) fn give(&self, mut start: u64, mut content: &[u8]) -> io::Result<()> {
        while !content.is_empty() {
            let mut copy = Copy {
                dst: start,
                src: content.as_ptr().expose_provenance() as u64,
                len: content.len() as u64,
                mode: 0,
                copy: 0,
            };
            match self.ask(UFFDIO_COPY, &raw mut copy) {
                // A part of it is done, or the mappings were being changed.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                // The page is there: it was never freed, or CRIU gave it before it was killed.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    copy.copy = PAGE as i64;
                }
                Err(error) if is_not_missing(&error) => return Ok(()),
                other => other?,
            }
            let done = usize::try_from(copy.copy).unwrap_or(0).min(content.len());
            content = &content[done..];
            start += done as u64;
        }
        Ok(())
    }

    /// The number of its descriptor.
    pub(crate) fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    fn ask<T>(&self, request: libc::c_ulong, argument: *mut T) -> io::Result<()> {
        // SAFETY: each request reads and writes the one structure that it is called with above,
        // which outlives the call, as does the slice that is the source of a copy.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) } == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Of UFFDIO_COPY: ENOENT, no part of that range is registered; ESRCH, its process has ended
/// (ioctl_userfaultfd(2)).
fn is_not_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn take_over(pid: i32, theirs: u64) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let number = i32::try_from(theirs).map_err(io::Error::other)?;
    Ok(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    impl Userfaultfd {
        /// Of this process.
        pub(crate) fn own() -> Self {
            let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
            // SAFETY: it takes flags and returns a new descriptor, which nobody else has.
            let own = unsafe {
                let fd = libc::syscall(libc::SYS_userfaultfd, flags);
                Self(OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()))
            };
            let mut api = Api {
                api: UFFD_API,
                features: 0,
                ioctls: 0,
            };
            own.ask(UFFDIO_API, &raw mut api).unwrap();
            own
        }

        /// Registers whole pages of this process and frees them.
        pub(crate) fn empty(&self, memory: &mut [u8]) {
            let start = memory.as_mut_ptr();
            let address = start.expose_provenance() as u64;
            self.protect(address, address + memory.len() as u64)
                .unwrap();
            // SAFETY: they are bytes of a slice that is ours alone, and have any value afterwards.
            let freed = unsafe { libc::madvise(start.cast(), memory.len(), libc::MADV_DONTNEED) };
            assert_eq!(freed, 0);
        }
    }

    #[test]
    fn what_is_not_registered_is_not_missing() {
        let own = Userfaultfd::own();
        let mut memory = vec![1_u8; 3 * PAGE];
        let start = memory.as_ptr().expose_provenance().next_multiple_of(PAGE) as u64;
        own.give(start, &[7; PAGE]).unwrap();
        own.release(start, start + PAGE as u64).unwrap();
        assert!(memory.iter_mut().all(|byte| *byte == 1));
    }
}
