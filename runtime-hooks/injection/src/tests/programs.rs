//! Programs whose own work gets into the way.

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use stasis_linux::procfs::children;

use super::program::{Variant, Workload};
use super::round::{PIECES, armed, assert_holds_contents, out_and_in, out_into, returned, store};
use super::state::State;
use crate::slots::inspect;
use crate::{InjectionError, PutBack, prepare, put_back};

fn round_of(variant: Variant) {
    let mut workload = Workload::start(PIECES, variant);
    for _ in 0..3 {
        out_and_in(&mut workload, |_| {});
    }
}

#[test]
fn a_program_that_takes_every_child() {
    round_of(Variant::Taker);
}

#[test]
fn a_program_of_many_threads() {
    round_of(Variant::Crowd);
}

#[test]
fn a_program_that_locks_its_memory() {
    round_of(Variant::Locked);
}

#[test]
fn a_program_that_may_make_hardly_any_system_call() {
    round_of(Variant::Filtered);
}

/// A signal that a program sends to its group is not for the workers.
#[test]
fn signals_to_the_whole_process_group() {
    let mut workload = Workload::start(PIECES, Variant::Lazy);
    let group = Pid::from_raw(workload.pid());
    out_and_in(&mut workload, |_| {
        for signal in [Signal::SIGTERM, Signal::SIGSTOP, Signal::SIGCONT] {
            killpg(group, signal).unwrap();
        }
    });
}

#[test]
fn a_child_that_is_forked_while_the_code_is_there() {
    let mut workload = Workload::start(PIECES, Variant::Lazy);
    out_and_in(&mut workload, |_| {});
    let mut forks = 0;
    out_and_in(&mut workload, |workload| {
        // While a child does not get the mapping of the contents, it has no contents.
        if forks == 0 {
            assert_eq!(workload.tell("fork"), 0);
        }
        forks += 1;
    });
}

/// Each worker is killed while the driver copies, wherever it is.
#[test]
fn workers_that_are_killed_cost_no_byte() {
    let mut workload = Workload::start(PIECES, Variant::BindNow);
    for killed in 0..8 {
        let slots = inspect(&workload.process()).unwrap();
        let before = State::of(&workload, &slots);
        let file = store();
        let armed = armed(&workload, out_into(&file));
        let workers = children(workload.pid());
        assert_eq!(workers.len(), 3);
        assert_eq!(workload.tell("half-out"), 0);
        workload.begin("rest-out");
        for worker in workers.iter().take(killed % 4) {
            kill(Pid::from_raw(*worker), Signal::SIGKILL).unwrap();
        }
        assert_eq!(workload.answer(), 0);
        returned(armed.disarm().unwrap());
        assert_holds_contents(&file);
        assert_eq!((workload.tell("in"), workload.tell("wrong")), (0, 0));
        assert_eq!(State::of(&workload, &slots), before);
    }
}

/// A debugger attaches between the first look and the second.
#[test]
fn a_debugger_that_comes_meanwhile() {
    let mut workload = Workload::start(PIECES, Variant::Lazy);
    let process = workload.process();
    let slots = inspect(&process).unwrap();
    let before = State::of(&workload, &slots);
    let prepared = prepare(&process, slots.clone(), out_into(&store()), 3).unwrap();
    let record = prepared.record().clone();
    let pid = Pid::from_raw(workload.pid());
    ptrace::seize(pid, ptrace::Options::empty()).unwrap();
    // Nothing can be taken out, either.
    let error = prepared.arm().unwrap_err();
    assert!(matches!(error, InjectionError::PutBack(_)), "{error}");
    ptrace::interrupt(pid).unwrap();
    nix::sys::wait::waitpid(pid, None).unwrap();
    ptrace::detach(pid, None).unwrap();
    returned(put_back(&process, &record).unwrap());
    assert_eq!(State::of(&workload, &slots), before);
    let again = put_back(&process, &record).unwrap();
    assert!(matches!(again, PutBack::NothingThere), "{again:?}");
    out_and_in(&mut workload, |_| {});
}

/// The linker has found the function, at the first call through a slot since the inspection.
#[test]
fn a_slot_that_has_changed_meanwhile() {
    let mut workload = Workload::start(PIECES, Variant::Lazy);
    let process = workload.process();
    let prepared = prepare(&process, inspect(&process).unwrap(), out_into(&store()), 3).unwrap();
    assert_eq!((workload.tell("out"), workload.tell("in")), (0, 0));
    let slots = inspect(&process).unwrap();
    let error = prepared.arm().unwrap_err();
    assert!(matches!(error, InjectionError::Arm(_)), "{error}");
    assert_eq!(inspect(&process).unwrap(), slots);
    assert!(children(workload.pid()).is_empty());
    out_and_in(&mut workload, |_| {});
}
