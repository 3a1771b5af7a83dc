//! memcpy(3), as the driver calls it.
#![allow(unsafe_code)] // raw memory of the process

use core::sync::atomic::Ordering::Relaxed;

use crate::board::{Board, Settings};
use crate::bytes::{move_bytes, overlap};
use crate::job::ROUND;

/// From how many bytes on a copy is shared out; the driver's have 2 MiB.
const SHARED_FROM: usize = 256 << 10;

/// Copies `length` bytes: as memcpy(3), and as memmove(3) where the ranges overlap.
///
/// # Safety
/// As for memmove(3).
pub unsafe fn memcpy(board: &Board, to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises; ranges that overlap are not shared out.
    unsafe {
        if length < SHARED_FROM || overlap(to, from, length) || !board.take_helpers() {
            move_bytes(to, from, length);
        } else {
            for start in (0..length).step_by(ROUND) {
                board.share(to.add(start), from.add(start), ROUND.min(length - start));
            }
            board.give_helpers_back();
        }
    }
    if board.settings.prepared(to) || board.settings.prepared(from) {
        board.report.copied.fetch_add(length as u64, Relaxed);
    }
}

impl Settings {
    /// Whether an address lies in the prepared mapping.
    fn prepared(&self, address: *const u8) -> bool {
        (address.addr() as u64).wrapping_sub(self.mapping) < self.mapping_length
    }
}
