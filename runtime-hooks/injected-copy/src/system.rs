//! The system calls of the injected code. They go to the kernel directly: libc's would set `errno`,
//! which is thread-local, and a helper has no thread-local storage of its own.
#![allow(unsafe_code)] // system calls

use core::arch::asm;
use core::sync::atomic::AtomicU64;

const MMAP: u64 = 9;
const MUNMAP: u64 = 11;
const SCHED_YIELD: u64 = 24;
const EXIT: u64 = 60;
const FUTEX: u64 = 202;

/// For threads that share their memory.
const WAIT_PRIVATE: u64 = 128;
const WAKE_PRIVATE: u64 = 129;

const EINTR: i64 = -4;
const EAGAIN: i64 = -11;
const ETIMEDOUT: i64 = -110;

/// How long a helper sleeps before it looks whether it shall end.
const NAP: [u64; 2] = [0, 10_000_000]; // struct timespec

/// Whether sleeping is possible.
#[derive(PartialEq, Eq)]
pub(crate) enum Slept {
    /// The thread was woken, need not sleep, or has slept long enough.
    Yes,
    /// A seccomp filter may refuse futex(2).
    Refused,
}

/// Sleeps while the lower half of `word` is `seen`, 10 ms at most.
pub(crate) fn sleep(word: &AtomicU64, seen: u64) -> Slept {
    let (address, nap) = (word.as_ptr() as u64, NAP);
    let arguments = [address, WAIT_PRIVATE, seen, nap.as_ptr() as u64, 0, 0];
    // The kernel compares the lower half of the word with that of `seen`.
    // SAFETY: futex reads the word and the time, which both outlive the call.
    let result = unsafe { call(FUTEX, arguments) };
    match result {
        0 | EINTR | EAGAIN | ETIMEDOUT => Slept::Yes,
        _ => Slept::Refused,
    }
}

/// Wakes all threads that sleep on `word`. Where a filter refuses it, no thread sleeps.
pub(crate) fn wake(word: &AtomicU64) {
    let all = i32::MAX as u64;
    // SAFETY: for a private futex the address is a name only.
    unsafe { call(FUTEX, [word.as_ptr() as u64, WAKE_PRIVATE, all, 0, 0, 0]) };
}

/// Lets another thread run on this CPU.
pub(crate) fn yield_now() {
    // SAFETY: sched_yield takes nothing.
    unsafe { call(SCHED_YIELD, [0; 6]) };
}

/// Unmaps whole pages; returns the errno of a failure.
///
/// # Safety
/// No thread uses the pages.
pub(crate) unsafe fn unmap(address: u64, length: u64) -> Result<(), u64> {
    // SAFETY: as the caller promises.
    match unsafe { call(MUNMAP, [address, length, 0, 0, 0, 0]) } {
        0 => Ok(()),
        error => Err(error.unsigned_abs()),
    }
}

/// mmap(2) without libc: the address, or a negative errno.
///
/// # Safety
/// As for mmap(2).
pub(crate) unsafe fn map(arguments: [u64; 6]) -> i64 {
    // SAFETY: as the caller promises.
    unsafe { call(MMAP, arguments) }
}

/// Ends this thread, and its process if this is the only thread.
pub(crate) fn exit() -> ! {
    loop {
        // SAFETY: nothing of this thread is used any more.
        unsafe { call(EXIT, [0; 6]) };
    }
}

/// # Safety
/// As for the system call.
unsafe fn call(number: u64, arguments: [u64; 6]) -> i64 {
    let result;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel keeps all registers but these three; memory is as the caller promises.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}
