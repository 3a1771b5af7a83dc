//! The system calls of the code. They go to the kernel directly: libc's would have to be found
//! first.
#![allow(unsafe_code)] // system calls

use core::arch::asm;
use core::ffi::c_int;
use core::mem::MaybeUninit;

use crate::board::FILES;

const CLOSE: u64 = 3;
const NANOSLEEP: u64 = 35;
const RECVMSG: u64 = 47;
const SOCKETPAIR: u64 = 53;
const CLOCK_GETTIME: u64 = 228;

const CLOCK_MONOTONIC: u64 = 1;
const AF_UNIX: u64 = 1;
/// `SOCK_SEQPACKET | SOCK_CLOEXEC`.
const PACKETS: u64 = 5 | 0o2_000_000;
/// `MSG_DONTWAIT | MSG_CMSG_CLOEXEC`.
const AT_ONCE: u64 = 0x40 | 0x4000_0000;
/// `SOL_SOCKET` and `SCM_RIGHTS`, as two numbers in one word.
const DESCRIPTORS: u64 = 1 | 1 << 32;

/// An errno.
type Result<T> = core::result::Result<T, c_int>;

/// # Safety
/// The call does no harm with these arguments.
unsafe fn call(number: u64, arguments: [u64; 4]) -> Result<u64> {
    let [first, second, third, fourth] = arguments;
    let mut result = number;
    // SAFETY: as the caller promises; the kernel keeps all registers but these.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    match result.cast_signed() {
        error @ -4095..0 => Err(c_int::try_from(-error).unwrap_or(c_int::MAX)),
        _ => Ok(result),
    }
}

/// Nanoseconds of the monotonic clock. 0 where a filter refuses the call: then no time passes.
pub(crate) fn now() -> u64 {
    let mut time = [0_u64; 2]; // struct timespec
    // SAFETY: the kernel writes a timespec to where one is.
    let result = unsafe {
        call(
            CLOCK_GETTIME,
            [CLOCK_MONOTONIC, time.as_mut_ptr() as u64, 0, 0],
        )
    };
    match result {
        Ok(_) => time[0].wrapping_mul(1_000_000_000).wrapping_add(time[1]),
        Err(_) => 0,
    }
}

/// Sleeps for less than a second, or until a signal comes.
pub(crate) fn nap(nanoseconds: u64) {
    let time = [0, nanoseconds]; // struct timespec
    // SAFETY: the kernel reads a timespec.
    let _ = unsafe { call(NANOSLEEP, [time.as_ptr() as u64, 0, 0, 0]) };
}

/// Closes a descriptor of ours.
pub(crate) fn close(file: u64) -> Result<()> {
    // SAFETY: nothing else uses it.
    unsafe { call(CLOSE, [file, 0, 0, 0]) }.map(drop)
}

/// Makes a pair of connected sockets for messages.
pub(crate) fn socket_pair() -> Result<[u64; 2]> {
    let mut pair = [0_i32; 2];
    // SAFETY: the kernel writes two numbers to where they are.
    unsafe { call(SOCKETPAIR, [AF_UNIX, PACKETS, 0, pair.as_mut_ptr() as u64]) }?;
    Ok(pair.map(|end| u64::from(end.cast_unsigned())))
}

/// A `struct cmsghdr` with its descriptors.
#[repr(C)]
struct Control {
    length: u64,
    kind: u64,
    files: [u32; FILES],
}

/// Takes one message that has already arrived, and passes on each descriptor that came with it.
pub(crate) fn receive(socket: u64, mut take: impl FnMut(u64)) -> Result<()> {
    const HEADER: u64 = 16;
    let mut byte = 0_u64;
    let mut control = MaybeUninit::<Control>::uninit();
    let part = [&raw mut byte as u64, 1]; // struct iovec
    let room = size_of::<Control>() as u64;
    // struct msghdr
    let mut message = [
        0,
        0,
        part.as_ptr() as u64,
        1,
        control.as_mut_ptr() as u64,
        room,
        0,
    ];
    // SAFETY: all parts of the message exist, with their lengths.
    unsafe { call(RECVMSG, [socket, message.as_mut_ptr() as u64, AT_ONCE, 0]) }?;
    let control = control.as_ptr();
    let written = message[5].min(room);
    if written < HEADER {
        return Ok(());
    }
    // SAFETY: the kernel has written the first two words.
    let (length, kind) = unsafe { ((*control).length, (*control).kind) };
    if kind != DESCRIPTORS {
        return Ok(());
    }
    let count = length.min(written).saturating_sub(HEADER) / 4;
    // SAFETY: from its begin, within one object.
    let files = unsafe { (&raw const (*control).files).cast::<u32>() };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the kernel has written `count` of them.
        take(u64::from(unsafe { files.add(index).read() }));
    }
    Ok(())
}
