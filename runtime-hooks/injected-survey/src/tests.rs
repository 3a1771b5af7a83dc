//! The functions that are injected, with a driver of the test's.
#![allow(unsafe_code)] // boards of zeros, and a library of the test's

mod fake;
mod handles;
mod heap;
mod identify;
mod imported;
mod imports;

use super::*;
use fake::{HOST, IMPORT, LARGE, OTHERS, POOL, with_driver};

const MIB: u64 = 1 << 20;

/// Makes a new board: zeros.
fn board() -> Box<Board> {
    // SAFETY: zeros are a board.
    unsafe { Box::new_zeroed().assume_init() }
}

fn request(what: What, device: u64, from: Cursor, limit_ns: u64) -> Request {
    let range = |address, bytes| Item {
        address,
        bytes,
        ..Item::default()
    };
    let mut items = [Item::default(); ITEMS];
    items[0] = range(fake::SPACE.start, fake::SPACE.end - fake::SPACE.start);
    // The second range has no allocation.
    items[1] = range(0x5000_0000, 0x1000);
    Request {
        frame: 0,
        functions: fake::functions(),
        slots: heap::slots(),
        hooks: heap::hooks(),
        what: what as u64,
        device,
        limit_ns,
        patience_ns: 0,
        from,
        count: 2,
        items,
    }
}

/// Writes the request as another process does, and reads the answer in the same way.
fn ask<T>(request: &Request, read: impl FnOnce(&board::Read<'_>) -> T) -> T {
    let mut board = board();
    let place: *mut Board = &raw mut *board;
    let words: Vec<u64> = request.words().collect();
    // SAFETY: the words of a request at the place for them.
    unsafe {
        let to = place.byte_add(Board::REQUEST).cast::<u64>();
        std::ptr::copy_nonoverlapping(words.as_ptr(), to, words.len());
        heap::with_board(place, || survey(place));
        assert!(heap::is_as_it_was());
        let answer = place.byte_add(Board::ANSWER).cast::<[u64; Answer::WORDS]>();
        read(&Answer::read(&*answer))
    }
}

/// Lists the allocations that a device's context sees, or that no context is needed for.
fn all(device: u64) -> Vec<Allocation> {
    let request = request(What::Allocations, device, Cursor::default(), u64::MAX);
    ask(&request, |answer| {
        assert!(answer.is_answered);
        assert_eq!(answer.failed, None);
        assert_eq!((answer.next.range, answer.active), (2, 0b11));
        answer.allocations().collect()
    })
}

#[test]
fn all_kinds_are_told_with_their_rights() {
    let seen = |each: &Allocation| (each.address, each.bytes, each.kind, each.access);
    let kind = |kind: Kind| kind as u64;
    let of_both = [
        (LARGE, 512 * MIB, kind(Kind::Ordinary), 0),
        (IMPORT, 2 * MIB, kind(Kind::Virtual), 0b01),
        (OTHERS, 4 * MIB, kind(Kind::Virtual), 0b10),
        (POOL, 32 * MIB, kind(Kind::Pool), 0b11),
        (HOST, 2 * MIB, kind(Kind::Virtual), 0b10),
    ];
    with_driver(|| {
        let found = all(1);
        assert_eq!(found.iter().map(seen).collect::<Vec<_>>(), of_both);
        let told = |each: &Allocation| (each.location_type, each.location, each.handle_types);
        assert_eq!(told(&found[1]), (1, 1, 0));
        assert_eq!(told(&found[2]), (1, 1, 1));
        assert_eq!(told(&found[4]), (3, 0, 0));
        let first: Vec<u64> = all(0).iter().map(|each| each.address).collect();
        assert_eq!(first, [LARGE, IMPORT, POOL, HOST]);
        // OTHERS in two pieces of 2 MiB.
        let with_handles: Vec<u64> = all(NO_CONTEXT).iter().map(|each| each.address).collect();
        assert_eq!(with_handles, [IMPORT, OTHERS, OTHERS + 2 * MIB, HOST]);
    });
}

/// Asks for one step each time, from where the last answer ended.
#[test]
fn an_answer_that_is_late_says_where_to_go_on() {
    with_driver(|| {
        let (mut from, mut found, mut asked) = (Cursor::default(), Vec::new(), 0);
        while from.range < 2 {
            let request = request(What::Allocations, 1, from, 0);
            ask(&request, |answer| {
                found.extend(answer.allocations().map(|each| each.address));
                assert_ne!(answer.next, from);
                from = answer.next;
            });
            asked += 1;
        }
        assert_eq!(found, [LARGE, IMPORT, OTHERS, POOL, HOST]);
        assert!(asked > 1, "{asked}");
    });
}

#[test]
fn peer_access_that_is_there_is_left_alone() {
    with_driver(|| {
        let request = request(What::Peers, NO_CONTEXT, Cursor::default(), u64::MAX);
        for _ in 0..2 {
            ask(&request, |answer| {
                assert_eq!(answer.failed, None);
                assert_eq!(answer.peers[..3], [0b10, 0, 0]);
            });
            // Of the first to the second; the other access was enabled and disabled.
            assert_eq!(fake::peer_access(), [(0, 1)]);
        }
    });
}

#[test]
fn a_call_that_must_not_fail_is_named() {
    with_driver(|| {
        fake::fail_to_count();
        let request = request(What::Allocations, 0, Cursor::default(), u64::MAX);
        ask(&request, |answer| {
            let (call, result) = answer.failed.unwrap();
            assert_eq!(
                FUNCTIONS[usize::try_from(call).unwrap()],
                "cuDeviceGetCount"
            );
            assert_eq!(result, 3);
        });
    });
}

/// A process may write anything there.
#[test]
fn an_answer_of_anything_is_read_within_its_bounds() {
    let words = vec![u64::MAX; Answer::WORDS];
    let words: Box<[u64; Answer::WORDS]> = words.try_into().unwrap();
    let read = Answer::read(&words);
    assert_eq!(read.allocations().count(), 512);
}
