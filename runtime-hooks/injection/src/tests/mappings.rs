//! Programs with as many mappings as the kernel allows a process (`vm.max_map_count`).

use super::program::{Variant, Workload};
use super::round::{PIECES, out_and_in, out_into, store};
use super::state::State;
use crate::slots::inspect;
use crate::{InjectionError, PutBack, prepare};

/// Our mappings are fewer.
const MOST: u64 = 30;

/// Without room for our mappings nothing is changed; with room it works as with other programs.
#[test]
fn a_program_with_as_many_mappings_as_are_allowed() {
    let mut workload = Workload::start(PIECES, Variant::BindNow);
    out_and_in(&mut workload, |_| {});
    assert!(workload.tell("map-all") > MOST);
    let mut lacked = 0;
    while !has_room(&workload) {
        lacked += 1;
        assert!(lacked < MOST, "it has room for {lacked} more");
        assert_eq!(workload.tell("unmap-one"), 0);
    }
    assert!(lacked > 0, "it had room at the limit");
    out_and_in(&mut workload, |_| {});
    assert_eq!(workload.tell("wrong"), 0);
}

/// Whether the workload can be armed; it is as before in the end.
fn has_room(workload: &Workload) -> bool {
    let process = workload.process();
    let slots = inspect(&process).unwrap();
    let before = State::of(workload, &slots);
    let armed =
        prepare(&process, slots.clone(), out_into(&store()), 3).and_then(|prepared| prepared.arm());
    let has_room = match armed {
        Ok(armed) => {
            let back = armed.disarm().unwrap();
            assert!(matches!(back, PutBack::Returned(_)), "{back:?}");
            true
        }
        Err(InjectionError::Prepare(error) | InjectionError::Arm(error)) => {
            assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error}");
            false
        }
        Err(error) => panic!("{error}"),
    };
    assert!(State::of(workload, &slots) == before, "it is not as before");
    has_room
}
