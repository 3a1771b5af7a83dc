//! memcpy(3), as the driver calls it.
#![allow(unsafe_code)] // raw memory of the process

use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::board::{Board, Settings};
use crate::bytes::{move_bytes, overlap};
use crate::job::ROUND;
use crate::system::{self, Slept};

/// Length in bytes from which a copy is shared out; the driver's copies have 2 MiB.
const SHARED_FROM: usize = 256 << 10;
/// How often a thread looks for loaded contents before it sleeps: about a millisecond.
const LOOKS: u32 = 20_000;

/// Copies `length` bytes: as memcpy(3), and as memmove(3) where the ranges overlap.
///
/// # Safety
/// As for memmove(3).
pub unsafe fn memcpy(board: &Board, to: *mut u8, from: *const u8, length: usize) {
    board.wait_for(from, length);
    board.may_write_again(to);
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
    board.is_filled(to, length);
}

impl Board {
    /// Waits until the source of a copy has been loaded.
    fn wait_for(&self, from: *const u8, length: usize) {
        if !self.settings.prepared(from) {
            return;
        }
        let start = self.settings.offset(from);
        let behind = self.settings.mapping_length - start;
        // Bytes behind the last one that is copied.
        let may_miss = behind.saturating_sub(length as u64);
        let mut looks = 0;
        loop {
            let missing = self.arrival.missing.load(Acquire);
            if missing <= may_miss {
                return;
            }
            if looks < LOOKS {
                looks += 1;
                spin_loop();
            } else if system::sleep(&self.arrival.missing, missing) == Slept::Refused {
                system::yield_now();
            }
        }
    }
}

/// How far the prepared mapping is filled: readers take that part of it to be final.
impl Board {
    /// Notes, before a copy to this address, that filled bytes may be written again.
    fn may_write_again(&self, to: *const u8) {
        let filled = self.report.filled.load(Relaxed);
        if self.settings.prepared(to) && self.settings.offset(to) < filled {
            self.report.written_again.store(1, SeqCst);
        }
    }

    /// Counts a copy as filled (Release: a thread that reads the count sees the copied bytes).
    fn is_filled(&self, to: *const u8, length: usize) {
        if self.settings.prepared(to) {
            let start = self.settings.offset(to);
            let end = start.saturating_add(length as u64);
            let filled = &self.report.filled;
            // A gap before it may be filled later, but bytes behind that gap are not counted.
            let _ = filled.compare_exchange(start, end, Release, Relaxed);
        }
    }
}

impl Settings {
    /// Whether an address lies in the prepared mapping.
    fn prepared(&self, address: *const u8) -> bool {
        self.offset(address) < self.mapping_length
    }

    /// Where an address lies in the prepared mapping, if it does.
    fn offset(&self, address: *const u8) -> u64 {
        (address.addr() as u64).wrapping_sub(self.mapping)
    }
}
