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

/// Resumes a stopped thread, and delivers a signal to it (0: none). nix knows no real-time signals.
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

/// The signals that a stopped thread blocks.
pub(crate) fn signals(thread: Pid) -> io::Result<SignalMask> {
    let mut mask: SignalMask = 0;
    transfer_mask(libc::PTRACE_GETSIGMASK, thread, &mut mask)?;
    Ok(mask)
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
/// (rseq(2)); `None` without one, and on kernels that were built without them (CONFIG_RSEQ).
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

/// The floating-point and vector registers of a stopped thread, in the standard format of XSAVE.
pub(crate) fn extended_registers(thread: Pid) -> io::Result<Vec<u8>> {
    /// linux/elf.h
    const NT_X86_XSTATE: usize = 0x202;
    /// The registers of all extensions take 11 KiB.
    const MOST: usize = 32 << 10;
    let mut bytes = vec![0; MOST];
    let length = read_registers(thread, NT_X86_XSTATE, bytes.as_mut_slice())?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Returns whether the return addresses of a stopped thread are also on a second stack, which has
/// entries for calls alone (CET).
pub(crate) fn has_shadow_stack(thread: Pid) -> bool {
    /// linux/elf.h
    const NT_X86_SHSTK: usize = 0x204;
    let mut pointer: u64 = 0;
    read_registers(thread, NT_X86_SHSTK, &mut pointer).is_ok()
}

/// Returns how many bytes were read.
fn read_registers<T: ?Sized>(thread: Pid, set: usize, value: &mut T) -> io::Result<usize> {
    let mut place = libc::iovec {
        iov_len: size_of_val(value),
        iov_base: from_mut(value).cast(),
    };
    let request = libc::PTRACE_GETREGSET;
    // SAFETY: the request writes at most `iov_len` bytes behind `iov_base`, which are numbers that
    // outlive the call.
    check(unsafe { libc::ptrace(request, thread.as_raw(), set, from_mut(&mut place)) })?;
    Ok(place.iov_len)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    }
}
