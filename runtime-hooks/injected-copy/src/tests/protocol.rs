//! Helpers that are late, held or dead, step by step: the test is the helper.
#![allow(unsafe_code)] // memory given as addresses

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use super::{Quit, begin, board, end, random, until};
use crate::board::{Board, HELPERS};
use crate::copy::memcpy;
use crate::job::{Owner, PART, Taken};
use crate::serve::serve;

const LENGTH: usize = 8 * PART - 5;
/// The part that the test takes, and the helper that it is.
const OURS: usize = 7;

/// Asserts that a wait has not ended, however often its thread may run.
fn never(has_happened: &AtomicBool) {
    for _ in 0..1000 {
        thread::yield_now();
        assert!(!has_happened.load(SeqCst), "it did not wait");
    }
}

/// How many parts are not done.
fn open(board: &Board) -> usize {
    let parts = board.parts.iter();
    parts.filter(|part| part.0.load(SeqCst) & 0xff != 0).count()
}

/// The caller announces a copy, the test takes a part of it, the caller does the others and waits.
/// After `act` has used the part in any way, the copy is complete when the caller returns.
fn with_a_part_taken(act: impl FnOnce(&Board, Taken)) {
    let board = board();
    let (source, mut target) = (random(LENGTH), vec![0; LENGTH]);
    let has_returned = AtomicBool::new(false);
    begin(&board, OURS);
    // SAFETY: both are as long.
    unsafe { board.announce(target.as_mut_ptr(), source.as_ptr(), LENGTH) };
    let taken = board.look(OURS).unwrap().take(helper()).unwrap();
    thread::scope(|scope| {
        let _end = End(&board);
        scope.spawn(|| {
            board.work();
            has_returned.store(true, SeqCst);
        });
        until(|| open(&board) == 1);
        never(&has_returned);
        act(&board, taken);
    });
    assert!(target == source);
}

/// Ends the helper, so that no thread waits for it when a test fails.
struct End<'b>(&'b Board);

impl Drop for End<'_> {
    fn drop(&mut self) {
        end(self.0, OURS);
    }
}

fn helper() -> Owner {
    Owner::helper(u8::try_from(OURS).unwrap())
}

#[test]
fn the_caller_waits_for_a_helper_that_is_held() {
    with_a_part_taken(|_, taken| taken.copy());
}

#[test]
fn the_caller_copies_again_what_a_dead_helper_had() {
    with_a_part_taken(|board, _| {
        let to = board.job.to.load(SeqCst);
        // SAFETY: a part of the target, which no other thread has.
        unsafe { to.add(OURS * PART).write_bytes(0x5a, PART / 2) };
        end(board, OURS);
    });
}

#[test]
fn a_late_helper_gets_nothing_of_another_round() {
    let board = board();
    let first = random(LENGTH);
    let (mut one, mut other) = (vec![0; LENGTH], vec![0; LENGTH]);
    begin(&board, OURS);
    let announce = |to: &mut Vec<u8>| {
        // SAFETY: both are as long.
        unsafe { board.announce(to.as_mut_ptr(), first.as_ptr(), LENGTH) };
    };
    announce(&mut one);
    let [late, later] = [0, 1].map(|_| board.look(OURS).unwrap());
    board.work();
    assert!(late.take(helper()).is_none(), "the round is over");
    announce(&mut other);
    assert!(later.take(helper()).is_none(), "another round is on");
    assert_eq!(open(&board), 8, "and every part of it is free");
    one.fill(0);
    board.work();
    assert!(other == first && one.iter().all(|&byte| byte == 0));
}

#[test]
fn a_second_thread_copies_alone_meanwhile() {
    let board = board();
    let (source, mut target) = (random(LENGTH), vec![0; LENGTH]);
    assert!(board.take_helpers());
    // SAFETY: both are as long.
    unsafe { memcpy(&board, target.as_mut_ptr(), source.as_ptr(), LENGTH) };
    assert!(target == source);
    assert_eq!(board.news.generation.load(SeqCst), 0);
    assert!(!board.take_helpers(), "the first still has them");
}

#[test]
fn two_threads_copy_at_the_same_time() {
    let (board, source) = (board(), random(LENGTH));
    super::with_helpers(&board, 2, || {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let mut target = vec![0; LENGTH];
                        // SAFETY: both are as long.
                        unsafe { memcpy(&board, target.as_mut_ptr(), source.as_ptr(), LENGTH) };
                        assert!(target == source);
                    }
                });
            }
        });
    });
}

#[test]
fn a_helper_that_sleeps_does_what_comes() {
    let board = board();
    let (source, mut target) = (random(LENGTH), vec![0; LENGTH]);
    super::with_helpers(&board, 1, || {
        until(|| board.news.asleep.load(SeqCst) == 1);
        // SAFETY: both are as long.
        unsafe { board.announce(target.as_mut_ptr(), source.as_ptr(), LENGTH) };
        until(|| open(&board) == 0);
        until(|| board.news.asleep.load(SeqCst) == 1);
    });
    assert!(target == source);
}

#[test]
fn who_cannot_be_seen_to_end_does_not_begin() {
    let board = board();
    let (source, mut target) = (random(LENGTH), vec![0; LENGTH]);
    // SAFETY: both are as long.
    unsafe { board.announce(target.as_mut_ptr(), source.as_ptr(), LENGTH) };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            until(|| is_over.load(SeqCst) || open(&board) == 0);
            drop(Quit(&board));
        });
        for index in [0, HELPERS - 1, HELPERS, usize::MAX] {
            serve(&board, index);
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!(open(&board), 8);
}
