//! The mmap calls that are answered with the prepared mapping, and the calls that are passed on.
#![allow(unsafe_code)] // mappings

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;

use tempfile::NamedTempFile;

use super::board;
use crate::board::{Board, Settings};
use crate::mapping::{Call, mmap};
use crate::system;

const MIB: u64 = 1 << 20;
const FAILED: u64 = u64::MAX;

/// Stands in for libc's mmap: returns a sum of its arguments.
unsafe extern "C" fn real(a: u64, length: u64, p: i32, f: i32, d: i32, offset: i64) -> u64 {
    let others = i64::from(p) + i64::from(f) + i64::from(d) + offset;
    let addresses = a.wrapping_add(length);
    addresses.wrapping_add(others.cast_unsigned())
}

/// A mapped file, as a prepared mapping is.
struct Prepared {
    file: NamedTempFile,
    board: Box<Board>,
}

impl Prepared {
    fn new() -> Self {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(b"contents").unwrap();
        file.as_file().set_len(8 * MIB).unwrap();
        let descriptor = u64::try_from(file.as_raw_fd()).unwrap();
        // SAFETY: PROT_READ | PROT_WRITE, MAP_SHARED, anywhere.
        let mapping = unsafe { system::map([0, 8 * MIB, 3, 1, descriptor, 0]) };
        let mut board = board();
        board.settings = Settings {
            mapping: u64::try_from(mapping).unwrap(),
            mapping_length: 8 * MIB,
            answered_from: 2 * MIB,
            real_mmap: real as *const () as u64,
        };
        Self { file, board }
    }

    fn ask(&self, call: Call) -> u64 {
        // SAFETY: no thread uses the prepared mapping; the real mmap maps nothing.
        unsafe { mmap(&self.board, call) }
    }

    /// Mapped ranges of the file: (address, length).
    fn mapped(&self) -> Vec<(u64, u64)> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let path = self.file.path().to_str().unwrap();
        let lines = maps.lines().filter(|line| line.ends_with(path));
        let range = |line: &str| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
            (start, end - start)
        };
        lines.map(range).collect()
    }
}

/// Returns the stand-in's answer to this call.
fn passed_on(call: Call) -> u64 {
    let Call {
        address,
        length,
        protection,
        flags,
        descriptor,
        offset,
    } = call;
    // SAFETY: the stand-in only adds.
    unsafe { real(address, length, protection, flags, descriptor, offset) }
}

#[test]
fn the_drivers_call_is_answered_once_and_the_rest_unmapped() {
    let prepared = Prepared::new();
    let mapping = prepared.board.settings.mapping;
    let call = Call::for_contents(5 * MIB + 100);
    assert_eq!(prepared.ask(call), mapping);
    assert_eq!(prepared.mapped(), [(mapping, 5 * MIB + 4096)]);
    let report = &prepared.board.report;
    assert_eq!(report.answered.load(super::SeqCst), call.length);
    assert_eq!(report.rest_errno.load(super::SeqCst), 0);
    assert_eq!(report.unanswered.load(super::SeqCst), 0);

    assert_eq!(prepared.ask(call), FAILED, "it is given away");
    assert_eq!(report.unanswered.load(super::SeqCst), call.length);
    assert_eq!(report.answered.load(super::SeqCst), call.length);
}

#[test]
fn the_whole_mapping_can_be_asked_for() {
    let prepared = Prepared::new();
    let mapping = prepared.board.settings.mapping;
    assert_eq!(prepared.ask(Call::for_contents(8 * MIB)), mapping);
    assert_eq!(prepared.mapped(), [(mapping, 8 * MIB)]);
}

#[test]
fn what_a_checkpoint_leaves_in_place_of_a_device_can_be_read() {
    let mut prepared = Prepared::new();
    let left = Call {
        address: 4096,
        length: 56 * MIB,
        protection: 0,
        flags: 0x2 | 0x20 | 0x10 | 0x4000,
        descriptor: -1,
        offset: 0,
    };
    let read = Call {
        protection: 1,
        ..left
    };
    assert_eq!(prepared.ask(left), passed_on(read));
    let others = [
        Call {
            length: 65 * MIB,
            ..left
        },
        Call {
            flags: 0x2 | 0x20,
            ..left
        },
        Call {
            protection: 3,
            ..left
        },
    ];
    for other in others {
        assert_eq!(prepared.ask(other), passed_on(other));
    }
    prepared.board.settings.answered_from = u64::MAX;
    assert_eq!(prepared.ask(left), passed_on(left), "at a restore");
}

#[test]
fn every_other_call_is_passed_on() {
    let prepared = Prepared::new();
    let exact = Call::for_contents(5 * MIB);
    let others = [
        Call {
            address: 4096,
            ..exact
        },
        Call {
            length: 2 * MIB - 1,
            ..exact
        },
        Call { length: 0, ..exact },
        Call {
            protection: 1,
            ..exact
        },
        Call {
            protection: 7,
            ..exact
        },
        Call {
            flags: 0x22,
            ..exact
        },
        Call {
            flags: 0x8021,
            ..exact
        },
        Call {
            flags: 0x4_8022,
            ..exact
        },
        Call {
            descriptor: 3,
            ..exact
        },
        Call {
            offset: 4096,
            ..exact
        },
    ];
    for call in others {
        assert_eq!(prepared.ask(call), passed_on(call), "{call:?}");
    }
    assert_eq!(prepared.board.report.answered.load(super::SeqCst), 0);
    assert_eq!(prepared.board.report.unanswered.load(super::SeqCst), 0);
    assert_eq!(prepared.mapped().len(), 1);
}

#[test]
fn contents_that_do_not_fit_are_refused() {
    let call = Call::for_contents(8 * MIB + 1);
    let prepared = Prepared::new();
    assert_eq!(prepared.ask(call), FAILED);
    assert_eq!(
        prepared.board.report.unanswered.load(super::SeqCst),
        call.length
    );
    assert_eq!(prepared.board.report.answered.load(super::SeqCst), 0);
    assert_eq!(
        prepared.ask(Call::for_contents(8 * MIB)),
        prepared.board.settings.mapping
    );
}

#[test]
fn a_rest_that_stays_is_told() {
    let mut prepared = Prepared::new();
    prepared.board.settings.mapping += 1;
    assert_eq!(
        prepared.ask(Call::for_contents(5 * MIB)),
        prepared.board.settings.mapping
    );
    let einval = 22;
    assert_eq!(prepared.board.report.rest_errno.load(super::SeqCst), einval);
}

#[test]
fn a_board_of_zeros_maps_as_the_kernel_does() {
    let prepared = Prepared {
        board: board(),
        ..Prepared::new()
    };
    let address = prepared.ask(Call::for_contents(2 * MIB));
    assert_eq!(address % 4096, 0);
    // SAFETY: no thread uses it.
    unsafe { system::unmap(address, 2 * MIB) }.unwrap();
    assert_eq!(
        prepared.ask(Call {
            length: 0,
            ..Call::for_contents(0)
        }),
        FAILED
    );
}
