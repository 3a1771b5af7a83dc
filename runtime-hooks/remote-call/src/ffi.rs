//! Requests of ptrace(2) that nix does not have.

#![allow(unsafe_code)] // FFI: ptrace(2) with pointers that it writes or reads

use std::io;
use std::ptr::from_mut;

use nix::libc;
use nix::unistd::Pid;

/// Signals by bit, as the kernel keeps them: 64 on all our machines.
pub(crate) type SignalMask = u64;

/// Blocks all signals of a stopped thread that can be blocked, and gives the mask that was there.
pub(crate) fn block_signals(thread: Pid) -> io::Result<SignalMask> {
    let mut before: SignalMask = 0;
    transfer(libc::PTRACE_GETSIGMASK, thread, &mut before)?;
    set_signals(thread, SignalMask::MAX)?;
    Ok(before)
}

pub(crate) fn set_signals(thread: Pid, mut mask: SignalMask) -> io::Result<()> {
    transfer(libc::PTRACE_SETSIGMASK, thread, &mut mask)
}

fn transfer(request: libc::c_uint, thread: Pid, mask: &mut SignalMask) -> io::Result<()> {
    // SAFETY: both requests take the size of the mask in the address argument, and read or write that many bytes behind the data pointer,
    // which is valid for both as long as the call lasts.
    let result = unsafe {
        libc::ptrace(
            request,
            thread.as_raw(),
            size_of::<SignalMask>(),
            from_mut(mask),
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The register that x86-64 keeps among the general ones.
#[cfg(target_arch = "aarch64")]
pub(crate) fn thread_local_storage(thread: Pid) -> io::Result<u64> {
    /// linux/elf.h
    const NT_ARM_TLS: usize = 0x401;
    let mut register: u64 = 0;
    let mut place = libc::iovec {
        iov_base: from_mut(&mut register).cast(),
        iov_len: size_of::<u64>(),
    };
    // SAFETY: the request writes at most `iov_len` bytes behind `iov_base`, which are a variable that outlives the call.
    let result = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            thread.as_raw(),
            NT_ARM_TLS,
            from_mut(&mut place),
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(register)
}
