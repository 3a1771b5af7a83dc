//! Contents in a file of ours are found, and become ordinary memory.

use std::num::NonZeroUsize;

use stasis_linux::memory_file::{self, Near};

use super::program::{Variant, Workload};
use super::round::{BYTES, armed, assert_holds_contents, out_into, returned};
use super::state::State;
use crate::slots::inspect;
use crate::{Span, Transfer, contents_of, make_private};

const THREADS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Checkpointed into a file that nobody but the process has any more.
fn suspended(variant: Variant) -> (Workload, Span) {
    let mut workload = Workload::start(super::round::PIECES, variant);
    assert_eq!(contents_of(&workload.process()).unwrap(), []);
    let file = memory_file::create(BYTES + (3 << 20), Near::Toucher).unwrap();
    let out = armed(&workload, out_into(&file));
    assert_eq!(workload.tell("out"), 0);
    let contents = returned(out.disarm().unwrap()).contents.unwrap();
    assert_holds_contents(&file);
    (workload, contents)
}

fn comes_back(mut workload: Workload, contents: Span) {
    let into = armed(&workload, Transfer::In { contents });
    assert_eq!(workload.tell("in"), 0);
    assert_eq!(returned(into.disarm().unwrap()).reported.copied, BYTES);
    assert_eq!(workload.tell("wrong"), 0);
    assert_eq!(contents_of(&workload.process()).unwrap(), []);
}

#[test]
fn contents_are_found_without_a_record() {
    let (workload, contents) = suspended(Variant::Lazy);
    assert_eq!(contents_of(&workload.process()).unwrap(), [contents]);
    comes_back(workload, contents);
}

#[test]
fn they_become_memory_of_the_process() {
    for variant in [Variant::Lazy, Variant::Taker, Variant::Locked] {
        let (workload, contents) = suspended(variant);
        let process = workload.process();
        let slots = inspect(&process).unwrap();
        let before = State::of(&workload, &slots);
        make_private(&process, contents, THREADS).unwrap();
        assert_eq!(contents_of(&process).unwrap(), []);
        let after = State::of(&workload, &slots);
        assert_eq!(after.without(contents), before.without(contents));
        comes_back(workload, contents);
    }
}

#[test]
fn what_is_not_there_is_left_as_it_is() {
    let (workload, contents) = suspended(Variant::Lazy);
    let process = workload.process();
    let slots = inspect(&process).unwrap();
    let before = State::of(&workload, &slots);
    let beyond = Span {
        length: 1 << 45,
        ..contents
    };
    make_private(&process, beyond, THREADS).unwrap_err();
    assert_eq!(State::of(&workload, &slots), before);
    comes_back(workload, contents);
}
