//! The signal mask of a stopped thread. (nix has no calls for it.)

#![allow(unsafe_code)] // FFI: ptrace(2) with a pointer that it writes or reads

use std::io;
use std::ptr::from_mut;

use nix::libc;
use nix::unistd::Pid;

/// Signals by bit, as the kernel keeps them: 64 on all our machines.
pub(crate) type Mask = u64;

/// Blocks all that can be blocked, and gives the mask that was there.
pub(crate) fn block_all(thread: Pid) -> io::Result<Mask> {
    let mut before: Mask = 0;
    transfer(libc::PTRACE_GETSIGMASK, thread, &mut before)?;
    set(thread, Mask::MAX)?;
    Ok(before)
}

pub(crate) fn set(thread: Pid, mut mask: Mask) -> io::Result<()> {
    transfer(libc::PTRACE_SETSIGMASK, thread, &mut mask)
}

fn transfer(request: libc::c_uint, thread: Pid, mask: &mut Mask) -> io::Result<()> {
    // SAFETY: both requests take the size of the mask in the address argument, and read or write that many bytes behind the data pointer,
    // which is valid for both as long as the call lasts.
    let result =
        unsafe { libc::ptrace(request, thread.as_raw(), size_of::<Mask>(), from_mut(mask)) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
