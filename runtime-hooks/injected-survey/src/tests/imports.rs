//! Imports, given up and mapped again, and descriptors.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::{scope, yield_now};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::fake::with_driver;
use super::imported::{World, with_world, world};
use super::*;

pub(super) const ONE: u64 = 0x1000;
pub(super) const OTHER: u64 = 0x2000;
const SECOND: u64 = 1_000_000_000;

/// The asking process, while the thread works.
pub(super) struct Host<'b>(pub(super) &'b Board);

impl Host<'_> {
    pub(super) fn until(&self, state: VisitState) {
        while self.0.answer.state.load(Acquire) != state as u64 {
            yield_now();
        }
    }

    pub(super) fn release_turn(&self, turn: u64) {
        self.0.host.store(turn, Release);
    }
}

pub(super) fn item(address: u64) -> Item {
    Item {
        address,
        bytes: 4096,
        device: 1,
        ..Item::default()
    }
}

pub(super) fn import_of(address: u64, references: u64) -> Item {
    Item {
        device: 0b11,
        first: references,
        // As after a drop: nobody uses it, and nobody else gets it.
        handle: heap::elsewhere(),
        ..item(address)
    }
}

/// Tries whether memory can be mapped that is mapped at this address.
pub(super) fn rehearsal_of(address: u64) -> Item {
    Item {
        second: Where::Elsewhere as u64,
        device: 0b11,
        ..item(address)
    }
}

fn request_of(what: What, items: &[Item], patience_ns: u64) -> Request {
    let mut request = request(what, NO_CONTEXT, Cursor::default(), u64::MAX);
    request.patience_ns = patience_ns;
    request.count = items.len() as u64;
    request.items[..items.len()].copy_from_slice(items);
    request
}

/// Asks without letting the thread continue.
pub(super) fn asked<T>(what: What, items: &[Item], read: impl FnOnce(&board::Read<'_>) -> T) -> T {
    ask(&request_of(what, items, SECOND / 100), read)
}

/// Asks with a host that may let the thread continue.
pub(super) fn with_host<T>(
    what: What,
    items: &[Item],
    host: impl FnOnce(&Host<'_>) + Send,
    read: impl FnOnce(&board::Read<'_>) -> T,
) -> T {
    let mut board = board();
    board.request = request_of(what, items, 60 * SECOND);
    let place = &raw mut *board as usize;
    scope(|scope| {
        scope.spawn(move || {
            let board = place as *mut Board;
            // SAFETY: the host uses only the words that both share.
            heap::with_board(board, || unsafe { survey(board) });
        });
        // SAFETY: as above.
        host(&Host(unsafe { &*(place as *const Board) }));
    });
    // SAFETY: the words of an answer.
    let words = unsafe { &*(&raw const board.answer).cast::<[u64; Answer::WORDS]>() };
    read(&Answer::read(words))
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Makes a file that names a place.
pub(super) fn file_of(place: u64) -> File {
    let name = name_of_file();
    let path = std::env::temp_dir().join(name);
    let mut file = File::create_new(&path).unwrap();
    fs::remove_file(path).unwrap();
    write!(file, "{place}").unwrap();
    file
}

fn name_of_file() -> String {
    format!("stasis-survey-{}", std::process::id())
}

pub(super) fn send(host: &Host<'_>, files: &[&File]) {
    host.until(VisitState::Holding);
    let socket = host.0.answer.socket.load(Acquire);
    // SAFETY: the socket is open until the thread continues.
    let socket = unsafe { BorrowedFd::borrow_raw(i32::try_from(socket).unwrap()) };
    for file in files {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let one = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&one));
        let byte = [IoSlice::new(&[0])];
        sendmsg(socket, &byte, &mut control, SendFlags::DONTWAIT).unwrap();
    }
    host.release_turn(1);
}

pub(super) fn imports(items: &[Item], files: &[&File], read: impl FnOnce(&board::Read<'_>)) {
    let before = descriptors();
    with_host(What::Import, items, |host| send(host, files), read);
    assert_eq!(descriptors(), before);
}

#[test]
fn dropping_counts_references_and_may_be_done_again() {
    with_driver(|| {
        let before = World::default().with(ONE, 1, 2).with(OTHER, 2, 0);
        let handles = [ONE, OTHER].map(|address| before.handle(address));
        let left = with_world(before, || {
            let items = [item(ONE), item(OTHER)];
            for references in [[3, 1], [0, 0]] {
                asked(What::Drop, &items, |answer| {
                    assert_eq!((answer.failed, answer.next.range), (None, 2));
                    let found: Vec<u64> = answer.values().take(2).map(|[all, _]| all).collect();
                    assert_eq!(found, references);
                });
            }
        });
        assert_eq!(left.mapped.len(), 0);
        assert_eq!(left.references, BTreeMap::new());
        // Nothing else gets the addresses.
        assert!(handles.into_iter().all(heap::is_live));
    });
}

#[test]
fn a_drop_that_takes_long_says_where_to_go_on() {
    with_driver(|| {
        with_world(World::default().with(ONE, 1, 1).with(OTHER, 2, 1), || {
            let mut request = request_of(What::Drop, &[item(ONE), item(OTHER)], 0);
            request.limit_ns = 0;
            for next in [1, 2] {
                ask(&request, |answer| assert_eq!(answer.next.range, next));
                request.from.range = next;
            }
            assert_eq!(world(|world| world.mapped.len()), 0);
        });
    });
}

#[test]
fn an_import_whose_access_cannot_be_made_again_is_not_dropped() {
    with_driver(|| {
        let before = World {
            is_read_only: true,
            ..World::default().with(ONE, 1, 1)
        };
        let left = with_world(before.clone(), || {
            asked(What::Drop, &[item(ONE)], |answer| {
                assert_eq!(answer.failed, Some((Other::Access.number(), 1)));
            });
        });
        assert_eq!(left, before);
    });
}

#[test]
fn descriptors_are_closed_once_they_were_taken_or_nobody_comes() {
    with_driver(|| {
        with_world(World::default().with(ONE, 1, 1).with(OTHER, 2, 1), || {
            let before = descriptors();
            let items = [item(ONE), item(OTHER)];
            let host = |host: &Host<'_>| {
                host.until(VisitState::Holding);
                assert_eq!(descriptors(), before + 2);
                host.release_turn(1);
            };
            with_host(What::Export, &items, host, |answer| {
                assert_eq!((answer.failed, answer.is_abandoned), (None, false));
            });
            asked(What::Export, &items, |answer| assert!(answer.is_abandoned));
            let without = [item(ONE), item(0x9000)];
            asked(What::Export, &without, |answer| {
                assert_eq!(
                    (answer.failed.map(|(call, _)| call), answer.item),
                    (Some(0), 1)
                );
            });
            assert_eq!(descriptors(), before);
            let references = world(|world| world.references());
            assert_eq!(references, [(ONE, 1), (OTHER, 1)]);
        });
    });
}

#[test]
fn a_rehearsal_leaves_nothing_and_says_what_fails() {
    let calls = [
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemImportFromShareableHandle",
    ];
    for call in [None].into_iter().chain(calls.map(Some)) {
        with_driver(|| {
            let world = World {
                failing: call.map(|call| (call, 0, 1)),
                ..World::default().with(ONE, 1, 1)
            };
            let before = heap::count();
            let left = with_world(world, || {
                imports(&[rehearsal_of(ONE)], &[&file_of(1)], |answer| {
                    let name = answer.failed.and_then(|(call, _)| name_of(call));
                    assert_eq!(name, call);
                });
            });
            let there: Vec<u64> = left.mapped.into_keys().collect();
            assert_eq!((there, left.reserved.len()), (vec![ONE], 0));
            assert_eq!(left.references.values().sum::<u64>(), 1);
            assert_eq!(heap::count(), before);
        });
    }
}

#[test]
fn what_of_an_import_fails_is_undone_and_the_one_before_stays() {
    let steps = [
        ("cuMemMap", 1),
        ("cuMemSetAccess", 1),
        // Two of these ask whether the address is mapped.
        ("cuMemRetainAllocationHandle", 3),
    ];
    for (call, after) in steps {
        with_driver(|| {
            let before = World {
                failing: Some((call, after, 1)),
                ..World::default()
            };
            let left = with_world(before, || {
                let items = [import_of(ONE, 1), import_of(OTHER, 3)];
                imports(&items, &[&file_of(1), &file_of(2)], |answer| {
                    let name = answer.failed.and_then(|(call, _)| name_of(call));
                    assert_eq!((name, answer.item), (Some(call), 1));
                });
            });
            assert_eq!(left.mapped.into_keys().collect::<Vec<_>>(), [ONE], "{call}");
            assert_eq!(left.references.values().sum::<u64>(), 1, "{call}");
        });
    }
}

#[test]
fn without_files_nothing_is_mapped() {
    with_driver(|| {
        let left = with_world(World::default(), || {
            let items = [import_of(ONE, 1), import_of(OTHER, 1)];
            imports(&items, &[&file_of(1)], |answer| {
                let (call, _) = answer.failed.unwrap();
                assert_eq!(name_of(call), Some("recvmsg(2)"));
            });
            let before = descriptors();
            asked(What::Import, &items, |answer| assert!(answer.is_abandoned));
            assert_eq!(descriptors(), before);
        });
        assert_eq!(left, World::default());
    });
}
