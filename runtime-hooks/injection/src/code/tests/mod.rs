//! The image as it was built, put into the memory of the test, with processes as helpers.

#![allow(unsafe_code)] // foreign code is called

mod held;
mod loaded;

use std::collections::BTreeSet;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use nix::libc;
use stasis_injected_copy::{Board, HELPERS, PART, Settings};

use super::{IMAGE, Image};
use held::{Fault, Held};
use loaded::Loaded;

/// 17 parts; the last has 16 bytes.
const LENGTH: usize = 16 * PART + 16;
/// The caller takes the first part first, and a helper the one that has its index, and one more.
const CALLERS: usize = 0;
const HELPERS_OWN: usize = PART + PART / 2;

fn image() -> Image {
    IMAGE
}

fn random(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..length).map(|_| random.u8(1..)).collect()
}

/// Asserts that a wait has not ended, however often its thread may run.
fn never(has_happened: &AtomicBool) {
    for _ in 0..1000 {
        thread::yield_now();
        assert!(!has_happened.load(SeqCst), "it did not wait");
    }
}

#[test]
fn the_image_has_entries_and_pages_behind_it() {
    let image = image();
    for entry in [image.memcpy, image.mmap, image.helper] {
        let endbr64 = [0xf3, 0x0f, 0x1e, 0xfa];
        assert_eq!(image.code[entry..][..4], endbr64);
    }
    assert_eq!(image.board, image.code.len().next_multiple_of(4096));
    assert!(image.code.len() < 8192, "it is small: {}", image.code.len());
}

#[test]
fn it_copies_with_and_without_helpers_wherever_it_lies() {
    let source = random(9 * LENGTH);
    let mut random = fastrand::Rng::with_seed(8);
    for helpers in [0, 1, 3] {
        let loaded = Loaded::new(None);
        let helpers: Vec<_> = (0..helpers).map(|index| loaded.helper(index)).collect();
        for _ in 0..100 {
            let most = [5000, 3 * LENGTH, source.len()][random.usize(..3)];
            let length = random.usize(..=most);
            let from = random.usize(..=source.len() - length);
            let mut target = vec![0; length + 64];
            loaded.memcpy(&raw mut target[33], &raw const source[from..][..length]);
            assert!(target[33..][..length] == source[from..][..length]);
            assert!(
                target[..33]
                    .iter()
                    .chain(&target[33 + length..])
                    .all(|&byte| byte == 0)
            );
        }
        loaded.quit();
        assert!(
            helpers.into_iter().all(|helper| helper.wait() == 0),
            "each exits with 0"
        );
        assert_eq!(loaded.thread_id(0), 0);
    }
}

#[test]
fn it_reports_what_it_has_done() {
    let source = random(LENGTH);
    let mut target = vec![0; LENGTH];
    let loaded = Loaded::new(Some(Settings {
        mapping: target.as_ptr() as u64,
        mapping_length: LENGTH as u64,
        answered_from: u64::MAX,
        real_mmap: libc::mmap as *const () as u64,
    }));
    loaded.memcpy(target.as_mut_ptr(), &raw const source[..]);
    assert_eq!(loaded.reported().copied, LENGTH as u64);
    assert_eq!(loaded.reported().answered, None);
}

#[test]
fn it_answers_the_driver_and_passes_errno_on() {
    let mapping = loaded::map(4 << 20);
    let loaded = Loaded::new(Some(Settings {
        mapping: mapping as u64,
        mapping_length: 4 << 20,
        answered_from: 1 << 20,
        real_mmap: libc::mmap as *const () as u64,
    }));
    let populated = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    assert_eq!(
        loaded.mmap(5 << 20, populated),
        Err(libc::ENOMEM),
        "longer than prepared"
    );
    assert_eq!(loaded.mmap(3 << 20, populated), Ok(mapping.addr()));
    assert_eq!(
        loaded.mmap(0, populated),
        Err(libc::EINVAL),
        "what libc says"
    );
    let reported = loaded.reported();
    assert_eq!(
        (reported.answered, reported.unanswered),
        (Some(3 << 20), Some(5 << 20))
    );
    loaded::unmap(mapping, 3 << 20);
}

/// A copy in which the caller and helper 0 each wait for a page of the source, in their own parts.
fn with_both_held(
    act: impl FnOnce(&Loaded, loaded::Helper, &Held, &dyn Fn() -> bool, &AtomicBool),
) {
    let (bytes, mut target) = (random(LENGTH), vec![0; LENGTH]);
    let held = Held::new(&bytes, &[CALLERS, HELPERS_OWN]);
    let loaded = Loaded::new(None);
    let helper = loaded.helper(0);
    let has_returned = AtomicBool::new(false);
    let to = target.as_mut_ptr().addr();
    thread::scope(|scope| {
        let _until = held.until_dropped();
        scope.spawn(|| {
            loaded.memcpy(ptr::with_exposed_provenance_mut(to), held.source());
            has_returned.store(true, SeqCst);
        });
        let mut faults = [held.next(), held.next()];
        faults.sort_by_key(|fault| fault.offset);
        let [callers, helpers] = faults;
        assert_eq!((callers.offset, helpers.offset), (CALLERS, HELPERS_OWN));
        assert_eq!(helpers.thread, helper.pid());
        // SAFETY: the last byte of the target.
        let rest_is_done = || unsafe {
            let last: *const u8 = ptr::with_exposed_provenance(to + LENGTH - 1);
            last.read_volatile() != 0
        };
        act(&loaded, helper, &held, &rest_is_done, &has_returned);
    });
    assert!(target == bytes);
}

#[test]
fn the_caller_waits_for_a_helper_that_is_held_within_its_part() {
    with_both_held(|loaded, helper, held, rest_is_done, has_returned| {
        held.give(CALLERS);
        while !rest_is_done() {
            thread::yield_now();
        }
        never(has_returned);
        held.give(HELPERS_OWN);
        loaded.quit();
        assert_eq!(helper.wait(), 0);
    });
}

#[test]
fn the_caller_copies_again_what_a_killed_helper_had() {
    with_both_held(|loaded, helper, held, _, has_returned| {
        helper.kill();
        assert_eq!(helper.wait(), libc::SIGKILL);
        assert_eq!(loaded.thread_id(0), 0);
        held.give(CALLERS);
        let Fault { offset, .. } = held.next();
        assert_eq!(
            offset, HELPERS_OWN,
            "the caller comes to the page that was missing"
        );
        never(has_returned);
        held.give(HELPERS_OWN);
    });
}

/// The helper whose first part is the short one, killed after each number of its instructions.
#[test]
fn a_helper_can_be_killed_at_every_instruction() {
    const SHORT: usize = 15;
    let bytes = random(LENGTH);
    let mut left_behind = BTreeSet::new();
    for steps in 0..150 {
        let mut target = vec![0; LENGTH];
        let held = Held::new(&bytes, &[CALLERS]);
        let loaded = Loaded::new(None);
        let helper = loaded.helper(SHORT);
        helper.stop();
        let to = target.as_mut_ptr().addr();
        thread::scope(|scope| {
            let _until = held.until_dropped();
            scope.spawn(|| loaded.memcpy(ptr::with_exposed_provenance_mut(to), held.source()));
            assert_eq!(held.next().offset, CALLERS);
            for _ in 0..steps {
                helper.step();
            }
            helper.kill();
            assert_eq!(helper.wait(), libc::SIGKILL);
            // SAFETY: the last part of the target, which no thread has.
            let short: &[u8] = unsafe {
                std::slice::from_raw_parts(ptr::with_exposed_provenance(to + 16 * PART), 16)
            };
            left_behind.insert(short.iter().filter(|&&byte| byte != 0).count());
            held.give(CALLERS);
        });
        assert!(target == bytes, "after {steps} instructions");
    }
    let (least, most) = (left_behind.first(), left_behind.last());
    assert_eq!((least, most), (Some(&0), Some(&16)));
    assert!(
        left_behind.len() > 4,
        "killed within its part: {left_behind:?}"
    );
}

/// As under a seccomp filter of the container.
#[test]
fn a_helper_that_may_not_sleep_goes_on() {
    let (source, mut target) = (random(LENGTH), vec![0; LENGTH]);
    let loaded = Loaded::new(None);
    let helper = loaded.helper(0);
    helper.stop();
    while helper.next_call() != libc::SYS_futex {}
    helper.refuse_call();
    assert_eq!(helper.next_call(), libc::SYS_sched_yield);
    helper.refuse_call();
    helper.let_go();
    loaded.memcpy(target.as_mut_ptr(), &raw const source[..]);
    assert!(target == source);
    loaded.quit();
    assert_eq!(helper.wait(), 0);
}

#[test]
fn every_helper_has_a_place() {
    let (source, mut target) = (random(LENGTH), vec![0; LENGTH]);
    let loaded = Loaded::new(None);
    for index in 0..HELPERS {
        let helper = loaded.helper(index);
        while loaded.thread_id(index) != helper.pid().unsigned_abs() {
            thread::yield_now();
        }
        loaded.memcpy(target.as_mut_ptr(), &raw const source[..]);
        helper.kill();
        loaded.memcpy(target.as_mut_ptr(), &raw const source[..]);
        assert_eq!(helper.wait(), libc::SIGKILL);
        assert!(target == source);
        target.fill(0);
    }
    assert_eq!(Board::thread_ids().len(), HELPERS);
}
