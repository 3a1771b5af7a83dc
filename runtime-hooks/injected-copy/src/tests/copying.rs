//! Bytes that memcpy has copied, and counted.
#![allow(unsafe_code)] // memory given as addresses

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use super::{board, random, until, with_helpers};
use crate::board::{Board, Reported, Settings};
use crate::copy::memcpy;
use crate::job::{PART, ROUND};

/// Copies within one buffer.
fn copy_within(board: &Board, bytes: &mut [u8], to: usize, from: usize, length: usize) {
    assert!(to.max(from) + length <= bytes.len());
    let base = bytes.as_mut_ptr();
    // SAFETY: both ranges lie in the buffer.
    unsafe { memcpy(board, base.add(to), base.add(from), length) };
}

#[test]
fn every_byte_arrives_and_no_other_changes() {
    let source = random(2 * ROUND + 3 * PART);
    let mut random = fastrand::Rng::with_seed(1);
    for helpers in [0, 1, 3, 15] {
        let board = board();
        with_helpers(&board, helpers, || {
            for _ in 0..40 {
                let most = [600, 3 * PART, 20 * PART, source.len()][random.usize(..4)];
                let length = random.usize(..=most);
                let from = random.usize(..=source.len() - length);
                let before = random.usize(..4096);
                let mut target = vec![0xa5; before + length + 64];
                // SAFETY: the target is long enough behind `before`.
                unsafe {
                    let to = target.as_mut_ptr().add(before);
                    memcpy(&board, to, source[from..].as_ptr(), length);
                }
                assert!(
                    target[before..][..length] == source[from..][..length],
                    "{length}"
                );
                assert!(target[..before].iter().all(|&byte| byte == 0xa5));
                assert!(target[before + length..].iter().all(|&byte| byte == 0xa5));
            }
        });
    }
}

#[test]
fn ranges_that_overlap_are_copied_as_by_memmove() {
    let original = random(5 * PART);
    let mut random = fastrand::Rng::with_seed(2);
    let board = board();
    with_helpers(&board, 2, || {
        for _ in 0..200 {
            let length = random.usize(..=4 * PART);
            let from = random.usize(..=original.len() - length);
            let near = from.saturating_sub(random.usize(..300)) + random.usize(..300);
            let to = near.min(original.len() - length);
            let (mut ours, mut expected) = (original.clone(), original.clone());
            copy_within(&board, &mut ours, to, from, length);
            expected.copy_within(from..from + length, to);
            assert!(ours == expected, "{length} bytes from {from} to {to}");
        }
    });
    assert_eq!(board.job.taken.load(SeqCst), 0);
}

#[test]
fn what_goes_in_and_out_of_the_mapping_is_counted_to_the_byte() {
    let mut bytes = random(24 * PART);
    let mut board = board();
    board.settings = Settings {
        mapping: bytes.as_ptr() as u64,
        mapping_length: 8 * PART as u64,
        answered_from: u64::MAX,
        real_mmap: 0,
    };
    let copied = || board.report.copied.load(SeqCst);
    copy_within(&board, &mut bytes, 0, 9 * PART, 7 * PART + 7);
    assert_eq!(copied(), 7 * PART as u64 + 7);
    copy_within(&board, &mut bytes, 16 * PART, 17, 1001);
    assert_eq!(copied(), 7 * PART as u64 + 1008);
    copy_within(&board, &mut bytes, 16 * PART, 8 * PART, 7 * PART);
    assert_eq!(copied(), 7 * PART as u64 + 1008, "copied elsewhere");
}

#[test]
fn how_far_the_mapping_is_filled_is_true_or_zero() {
    const PIECE: usize = PART;
    let mut bytes = random(24 * PIECE);
    let mut board = board();
    board.settings.mapping = bytes.as_ptr() as u64;
    board.settings.mapping_length = 8 * PIECE as u64;
    let reported = || {
        let report = std::ptr::from_ref(&board.report).cast::<[u8; 48]>();
        // SAFETY: the report lies there, and no thread writes to it now.
        Reported::from_bytes(&unsafe { report.read() }).filled / PIECE as u64
    };
    let mut copy = |to: usize, pieces: usize| {
        copy_within(&board, &mut bytes, to * PIECE, 12 * PIECE, pieces * PIECE);
        reported()
    };
    assert_eq!(copy(0, 2), 2);
    assert_eq!(copy(2, 1), 3);
    // Behind a gap, out of it, and elsewhere.
    assert_eq!(copy(5, 1), 3);
    assert_eq!(copy(3, 2), 5);
    assert_eq!(copy(8, 2), 5);
    // Counted or not, these bytes are written again.
    assert_eq!(copy(5, 1), 6);
    assert_eq!(copy(4, 1), 0);
    assert_eq!(copy(6, 1), 0);
}

#[test]
fn what_has_not_been_loaded_is_waited_for() {
    const PIECE: usize = 2 << 20;
    let (source, mut target) = (random(3 * PIECE), vec![0; 3 * PIECE]);
    let mut board = board();
    board.settings.mapping = source.as_ptr() as u64;
    board.settings.mapping_length = source.len() as u64;
    board.arrival.missing.store(source.len() as u64, SeqCst);
    let board = &*board;
    let copied = || usize::try_from(board.report.copied.load(SeqCst)).unwrap();
    thread::scope(|scope| {
        let (from, to) = (&source, &mut target);
        let copies = scope.spawn(move || {
            for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
                // SAFETY: both are of this length.
                unsafe { memcpy(board, to.as_mut_ptr(), from.as_ptr(), from.len()) };
            }
        });
        for (missing, there) in [(3, 0), (2, 1), (1, 2)] {
            // One byte too few is not enough.
            let missing = (missing * PIECE) as u64;
            board
                .arrival
                .missing
                .store(missing + u64::from(there > 0), SeqCst);
            thread::sleep(Duration::from_millis(30));
            assert!(
                copied() <= (there.max(1) - 1) * PIECE,
                "{} of {there}",
                copied()
            );
            board.arrival.missing.store(missing, SeqCst);
            until(|| copied() == there * PIECE);
        }
        board.arrival.missing.store(0, SeqCst);
        copies.join().unwrap();
    });
    assert!(source == target);
}
