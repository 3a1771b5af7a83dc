//! Checks whether a process can still write to a file.

#![allow(unsafe_code)] // FFI: fcntl(2) with numbers

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;

/// `F_SETSIG` (asm-generic/fcntl.h).
const SET_SIGNAL: libc::c_int = 10;

/// Returns whether no process has the file open for writing, or a mapping of it made by a process
/// that had, even a duplicated one (mremap(2) of length 0): the kernel grants a lease for reading
/// only then (fcntl(2), `F_RDLCK`). From then on a process has to open the file anew to write to
/// it, which needs a path, and the right to write. The path of a descriptor or a mapping in `/proc`
/// leads through the mount of its file ([`crate::file_system::detached`]).
///
/// `file` has to be open for reading only. The caller has to own it, or have CAP_LEASE.
///
/// # Errors
/// Errors of fcntl(2); EINVAL from file systems that have no leases.
pub fn is_sealed(file: &File) -> io::Result<bool> {
    // The kernel signals us if a process opens it for writing meanwhile: by default that ends us.
    set(file, SET_SIGNAL, libc::SIGURG)?;
    match set(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Err(Errno::EAGAIN) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(()) => {
            set(file, libc::F_SETLEASE, libc::F_UNLCK)?;
            Ok(true)
        }
    }
}

fn set(file: &File, what: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    // SAFETY: these commands of fcntl take a number, and touch no memory of ours.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), what, value) };
    Errno::result(result).map(drop)
}
