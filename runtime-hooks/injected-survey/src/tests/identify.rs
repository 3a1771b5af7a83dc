//! Tags, of which none is left afterwards.

use super::fake::with_driver;
use super::imported::{World, with_world, world};
use super::imports::{Host, asked, item, with_host};
use crate::{Item, Other, VisitState, What, name_of};

const ONE: u64 = 0x1000;
/// The same place as `ONE`.
const AGAIN: u64 = 0x2000;
const OTHER: u64 = 0x3000;
/// The place of `OTHER`, as another process has it mapped.
const CANDIDATE: u64 = 0x4000;

fn memory() -> World {
    World::default()
        .with(ONE, 1, 1)
        .with(AGAIN, 1, 1)
        .with(OTHER, 2, 1)
        .with(CANDIDATE, 2, 0)
}

fn tagged(address: u64, tag: [u64; 2]) -> Item {
    Item {
        bytes: 16,
        first: tag[0],
        second: tag[1],
        ..item(address)
    }
}

fn candidate(address: u64) -> Item {
    Item {
        bytes: 0,
        ..item(address)
    }
}

fn items() -> [Item; 4] {
    [
        tagged(ONE, [11, 12]),
        tagged(AGAIN, [21, 22]),
        tagged(OTHER, [31, 32]),
        candidate(CANDIDATE),
    ]
}

#[test]
fn a_candidate_shows_the_tag_of_its_owner_and_all_is_put_back() {
    with_driver(|| {
        let left = with_world(memory(), || {
            let host = |host: &Host| {
                host.until(VisitState::Holding);
                assert_eq!(world(|world| world.contents[&2]), [31, 32]);
                host.release_turn(1);
                host.until(VisitState::Read);
                host.release_turn(2);
            };
            with_host(What::Identify, &items(), host, |answer| {
                assert_eq!((answer.failed, answer.is_abandoned), (None, false));
                let values: Vec<_> = answer.values().take(4).collect();
                assert_eq!(values, [[1, 2], [11, 12], [2, 3], [31, 32]]);
            });
        });
        assert_eq!(left.contents, memory().contents);
    });
}

/// A rank in a container that nobody asks: its kernel raises a flag of 4 bytes.
#[test]
fn what_another_process_writes_meanwhile_stays() {
    let flag: u64 = 7 << 32;
    with_driver(|| {
        let left = with_world(memory(), || {
            let host = |host: &Host| {
                host.until(VisitState::Holding);
                world(|world| {
                    let [_, second] = world.contents.get_mut(&2).unwrap();
                    *second = *second & 0xffff_ffff | flag;
                });
                host.release_turn(2);
            };
            with_host(What::Identify, &items(), host, |answer| {
                assert_eq!(answer.failed, None);
            });
        });
        assert_eq!(left.contents[&1], memory().contents[&1]);
        let [first, second] = memory().contents[&2];
        assert_eq!(left.contents[&2], [first, second | flag]);
    });
}

/// In the reverse order: a place that is mapped twice was tagged twice.
#[test]
fn tags_are_taken_back_when_nobody_lets_the_thread_go_on() {
    with_driver(|| {
        let left = with_world(memory(), || {
            asked(What::Identify, &items(), |answer| {
                assert_eq!((answer.failed, answer.is_abandoned), (None, true));
            });
        });
        assert_eq!(left.contents, memory().contents);
        let to: Vec<u64> = left.copies.iter().map(|(address, _)| *address).collect();
        assert_eq!(to, [ONE, AGAIN, OTHER, OTHER, AGAIN, ONE]);
    });
}

#[test]
fn what_was_tagged_before_a_failure_is_put_back() {
    let of_calls = [
        ("cuMemcpyDtoH_v2", 1, 1),
        ("cuMemcpyHtoD_v2", 2, 2),
        ("cuMemcpyDtoH_v2", 3, 3),
    ];
    for (call, after, item) in of_calls {
        with_driver(|| {
            let before = World {
                failing: Some((call, after, 1)),
                ..memory()
            };
            let left = with_world(before, || {
                let host = |host: &Host| host.release_turn(2);
                with_host(What::Identify, &items(), host, |answer| {
                    let (number, result) = answer.failed.unwrap();
                    assert_eq!((name_of(number), result), (Some(call), 999));
                    assert_eq!(answer.item, item);
                });
            });
            assert_eq!(left.contents, memory().contents, "{call}");
        });
    }
}

#[test]
fn contents_are_put_back_at_the_fourth_time_or_that_is_said() {
    for (often, is_put_back) in [(3, true), (4, false)] {
        with_driver(|| {
            let before = World {
                failing: Some(("cuMemcpyHtoD_v2", 3, often)),
                ..memory()
            };
            let left = with_world(before, || {
                asked(What::Identify, &items(), |answer| {
                    let expected = (Other::PutBack.number(), 999);
                    assert_eq!(answer.failed, (!is_put_back).then_some(expected));
                    assert_eq!(answer.item, if is_put_back { 0 } else { 2 });
                });
            });
            assert_eq!(left.contents[&1], [1, 2], "the others are");
            assert_eq!(left.contents[&2] == [2, 3], is_put_back);
        });
    }
}

#[test]
fn a_device_without_a_context_is_named() {
    with_driver(|| {
        with_world(memory(), || {
            let foreign = Item {
                device: 2,
                ..candidate(CANDIDATE)
            };
            let host = |host: &Host| host.release_turn(1);
            with_host(What::Identify, &[foreign], host, |answer| {
                assert_eq!(answer.failed, Some((Other::Context.number(), 2)));
            });
        });
    });
}
