//! Requests of ptrace(2) that nix does not have, or not for every signal.

#![allow(unsafe_code)] // FFI: ptrace(2) with pointers that it writes or reads

use std::io;
use std::ptr::{from_mut, without_provenance_mut};

use nix::libc;
use nix::unistd::Pid;

/// Signals by bit, as the kernel keeps them: 64 on all our machines.
pub(crate) type SignalMask = u64;

/// How far a stopped thread runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RunTo {
    /// Until something else stops it.
    Event,
    /// Until it enters or leaves a system call.
    Syscall,
}

/// Lets a stopped thread run, and delivers a signal to it (0: none). nix knows no real-time
/// signals.
pub(crate) fn resume(thread: Pid, until: RunTo, signal: i32) -> io::Result<()> {
    let request = match until {
        RunTo::Event => libc::PTRACE_CONT,
        RunTo::Syscall => libc::PTRACE_SYSCALL,
    };
    let signal = usize::try_from(signal).map_err(io::Error::other)?;
    let nothing = without_provenance_mut::<libc::c_void>(0);
    let data = without_provenance_mut::<libc::c_void>(signal);
    // SAFETY: both requests take a signal number as data and ignore the address.
    check(unsafe { libc::ptrace(request, thread.as_raw(), nothing, data) })?;
    Ok(())
}

/// Blocks all signals of a stopped thread that can be blocked. Returns the mask that it had.
pub(crate) fn block_signals(thread: Pid) -> io::Result<SignalMask> {
    let mut before: SignalMask = 0;
    transfer_mask(libc::PTRACE_GETSIGMASK, thread, &mut before)?;
    set_signals(thread, SignalMask::MAX)?;
    Ok(before)
}

pub(crate) fn set_signals(thread: Pid, mut mask: SignalMask) -> io::Result<()> {
    transfer_mask(libc::PTRACE_SETSIGMASK, thread, &mut mask)
}

fn transfer_mask(request: libc::c_uint, thread: Pid, mask: &mut SignalMask) -> io::Result<()> {
    // SAFETY: both requests take the size of the mask in the address argument, and read or write
    // that many bytes behind the data pointer, which is valid for both as long as the call lasts.
    let result = unsafe {
        libc::ptrace(
            request,
            thread.as_raw(),
            size_of::<SignalMask>(),
            from_mut(mask),
        )
    };
    check(result).map(drop)
}

/// The address of the area that a stopped thread has registered for restartable sequences
/// (rseq(2)); `None` without one, and on kernels that do not report it (before 5.13).
pub(crate) fn rseq_area(thread: Pid) -> io::Result<Option<u64>> {
    /// linux/ptrace.h
    const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    /// `struct ptrace_rseq_configuration`.
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        area: u64,
        size: u32,
        signature: u32,
        flags: u32,
        padding: u32,
    }
    let mut found = Configuration::default();
    // SAFETY: the request takes the size of the structure in the address argument, and writes at
    // most that many bytes behind the data pointer, which is valid as long as the call lasts.
    let result = unsafe {
        libc::ptrace(
            PTRACE_GET_RSEQ_CONFIGURATION,
            thread.as_raw(),
            size_of::<Configuration>(),
            from_mut(&mut found),
        )
    };
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(None),
        other => other.map(|_| (found.area != 0).then_some(found.area)),
    }
}

/// The register that x86-64 keeps among the general ones.
#[cfg(target_arch = "aarch64")]
pub(crate) fn thread_local_storage(thread: Pid) -> io::Result<u64> {
    /// linux/elf.h
    const NT_ARM_TLS: usize = 0x401;
    let mut register: u64 = 0;
    transfer_registers(libc::PTRACE_GETREGSET, thread, NT_ARM_TLS, &mut register)?;
    Ok(register)
}

/// Has a thread that is about to make a system call make none (arch/arm64/kernel/ptrace.c).
#[cfg(target_arch = "aarch64")]
pub(crate) fn skip_call(thread: Pid) -> io::Result<()> {
    /// linux/elf.h
    const NT_ARM_SYSTEM_CALL: usize = 0x404;
    let mut number: i32 = -1;
    transfer_registers(
        libc::PTRACE_SETREGSET,
        thread,
        NT_ARM_SYSTEM_CALL,
        &mut number,
    )
}

#[cfg(target_arch = "aarch64")]
fn transfer_registers<T>(
    request: libc::c_uint,
    thread: Pid,
    set: usize,
    value: &mut T,
) -> io::Result<()> {
    let mut place = libc::iovec {
        iov_base: from_mut(value).cast(),
        iov_len: size_of::<T>(),
    };
    // SAFETY: the requests read or write at most `iov_len` bytes behind `iov_base`, which are a
    // number that outlives the call.
    check(unsafe { libc::ptrace(request, thread.as_raw(), set, from_mut(&mut place)) }).map(drop)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    }
}
