//! Bytes copied by one thread. Nothing here can become a call of memcpy, as a loop could.
#![allow(unsafe_code)] // raw memory of the process

use core::arch::asm;

/// Whether two ranges have a byte in common.
pub(crate) fn overlap(to: *const u8, from: *const u8, length: usize) -> bool {
    distance(from, to) < length || distance(to, from) < length
}

/// How far `to` lies behind `from`; very far, if it lies before it.
fn distance(from: *const u8, to: *const u8) -> usize {
    to.addr().wrapping_sub(from.addr())
}

/// Copies ranges that may overlap.
///
/// # Safety
/// As for memmove(3).
pub(crate) unsafe fn move_bytes(to: *mut u8, from: *const u8, length: usize) {
    if distance(from, to) >= length {
        // SAFETY: as the caller promises; bytes are read before they are overwritten.
        unsafe { copy_bytes(to, from, length) }
    } else if length != 0 {
        let last = length - 1;
        // SAFETY: as the caller promises. Backwards: the end of the source is overwritten. The
        // direction is put back, as the ABI asks.
        unsafe {
            asm!(
                "std", "rep movsb", "cld",
                inout("rcx") length => _,
                inout("rdi") to.add(last) => _,
                inout("rsi") from.add(last) => _,
                options(nostack),
            );
        }
    }
}

/// Copies upwards. The processor moves whole lines (ERMS).
///
/// # Safety
/// As for memcpy(3); the ranges may also overlap if `to` lies before `from`.
pub(crate) unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
}
