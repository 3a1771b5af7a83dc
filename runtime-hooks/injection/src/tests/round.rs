//! Out into a file and back, with each step of ours.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::program::{Variant, Workload};
use super::state::State;
use crate::slots::inspect;
use crate::{Armed, PutBack, Record, Returned, Span, Transfer, prepare};

pub(super) const PIECES: u64 = 9;
pub(super) const BYTES: u64 = PIECES * (2 << 20);
const WORKERS: u64 = 3;

/// Makes a file larger than the driver asks for, as the engine does.
pub(super) fn store() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(BYTES + (3 << 20)).unwrap();
    file
}

pub(super) fn out_into(file: &File) -> Transfer {
    Transfer::Out {
        file: file.try_clone().unwrap(),
        offset: 0,
        length: file.metadata().unwrap().len(),
    }
}

pub(super) fn armed(workload: &Workload, transfer: Transfer) -> Armed {
    let process = workload.process();
    let prepared = prepare(&process, inspect(&process).unwrap(), transfer, WORKERS).unwrap();
    let text = serde_json::to_string(prepared.record()).unwrap();
    assert_eq!(
        &serde_json::from_str::<Record>(&text).unwrap(),
        prepared.record()
    );
    prepared.arm().unwrap()
}

pub(super) fn returned(put_back: PutBack) -> Returned {
    match put_back {
        PutBack::Returned(returned) => returned,
        other => panic!("{other:?}"),
    }
}

/// Asserts that every word is the driver's.
pub(super) fn assert_holds_contents(file: &File) {
    let mut bytes = vec![0; usize::try_from(BYTES).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let (words, _) = bytes.as_chunks();
    for (index, word) in (0_u64..).zip(words) {
        let expected = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        assert_eq!(u64::from_ne_bytes(*word), expected, "word {index}");
    }
}

/// The driver's checkpoint and restore with all of ours around them.
pub(super) fn out_and_in(workload: &mut Workload, mut meanwhile: impl FnMut(&mut Workload)) {
    let slots = inspect(&workload.process()).unwrap();
    let before = State::of(workload, &slots);
    let file = store();
    let out = armed(workload, out_into(&file));
    meanwhile(workload);
    assert_eq!(workload.tell("out"), 0);
    let Returned { contents, reported } = returned(out.disarm().unwrap());
    let contents = contents.unwrap();
    let start = workload.tell("contents");
    assert_eq!(
        contents,
        Span {
            start,
            length: BYTES
        }
    );
    assert_eq!(start % (2 << 20), 0);
    assert_eq!((reported.copied, reported.answered), (BYTES, Some(BYTES)));
    assert_eq!(reported.filled, BYTES);
    assert_holds_contents(&file);

    let back = armed(workload, Transfer::In { contents });
    meanwhile(workload);
    assert_eq!(workload.tell("in"), 0);
    let Returned { contents, reported } = returned(back.disarm().unwrap());
    assert_eq!((contents, reported.copied), (None, BYTES));
    assert_eq!(workload.tell("wrong"), 0);
    assert_eq!(State::of(workload, &slots), before);
}

/// The first time through slots that were never called through, then through bound ones.
#[test]
fn contents_land_in_the_file_and_come_back() {
    let mut workload = Workload::start(PIECES, Variant::Lazy);
    out_and_in(&mut workload, |_| {});
    assert_eq!((workload.tell("out"), workload.tell("in")), (0, 0));
    for _ in 0..4 {
        out_and_in(&mut workload, |_| {});
    }
}

#[test]
fn a_process_that_is_never_asked_is_as_before() {
    let workload = Workload::start(PIECES, Variant::Lazy);
    let slots = inspect(&workload.process()).unwrap();
    let before = State::of(&workload, &slots);
    let file = store();
    let armed = armed(&workload, out_into(&file));
    assert_ne!(State::of(&workload, &slots), before);
    let returned = returned(armed.disarm().unwrap());
    assert_eq!(
        (returned.contents, returned.reported.answered),
        (None, None)
    );
    assert_eq!(State::of(&workload, &slots), before);
}

/// The container's limit may be too small for the driver's own way.
#[test]
fn a_file_that_is_too_short_is_an_error_of_the_driver() {
    let mut workload = Workload::start(PIECES, Variant::Lazy);
    let file = store();
    file.set_len(BYTES - 4096).unwrap();
    let armed = armed(&workload, out_into(&file));
    assert_eq!(workload.tell("half-out"), 1);
    let returned = returned(armed.disarm().unwrap());
    assert_eq!(
        (returned.contents, returned.reported.unanswered),
        (None, Some(BYTES))
    );
    assert_eq!(workload.tell("wrong"), 0);
}

#[test]
fn a_process_that_ends_meanwhile_is_no_error() {
    let workload = Workload::start(PIECES, Variant::Lazy);
    let armed = armed(&workload, out_into(&store()));
    drop(workload);
    assert!(matches!(armed.disarm().unwrap(), PutBack::Ended));
}
