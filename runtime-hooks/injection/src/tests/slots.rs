//! Slots that are found in processes, and processes that are refused.

use std::os::unix::fs::FileExt;

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::program::{Variant, Workload};
use super::state::{memory, value};
use crate::slots::{Function, Refusal, build_id, inspect};

fn refused(variant: Variant) -> Refusal {
    inspect(&Workload::start(1, variant).process()).unwrap_err()
}

/// Before its first call through a slot and after it.
#[test]
fn slots_are_found_unresolved_and_resolved() {
    let mut workload = Workload::start(1, Variant::Lazy);
    let first = inspect(&workload.process()).unwrap();
    assert_eq!(first.build_id.to_string().len(), 40);
    assert_eq!(build_id(&workload.process()).unwrap(), first.build_id);
    for word in ["out", "in", "wrong"] {
        assert_eq!(workload.tell(word), 0);
    }
    let second = inspect(&workload.process()).unwrap();
    assert_eq!(second.memcpy.address, first.memcpy.address);
    assert_ne!(
        second.memcpy.before, first.memcpy.before,
        "the linker has found it"
    );
    assert_eq!(
        second.memcpy.before,
        value(&workload, second.memcpy.address)
    );
    // mmap was called before, so its slot holds the linker's result, too.
    assert_eq!(second.mmap.before, second.libc_mmap);
}

#[test]
fn slots_that_are_bound_early_are_found() {
    let slots = inspect(&Workload::start(1, Variant::BindNow).process()).unwrap();
    assert_eq!(slots.mmap.before, slots.libc_mmap);
}

#[test]
fn read_only_slots_are_refused() {
    let refusal = refused(Variant::FullRelro);
    assert!(
        matches!(refusal, Refusal::ReadOnly(Function::Memcpy)),
        "{refusal}"
    );
}

#[test]
fn a_library_without_a_build_id_is_refused() {
    let refusal = refused(Variant::NoBuildId);
    assert!(matches!(refusal, Refusal::NoBuildId), "{refusal}");
}

#[test]
fn a_library_that_is_mapped_twice_is_refused() {
    let refusal = refused(Variant::Twice);
    assert!(matches!(refusal, Refusal::DriverTwice), "{refusal}");
}

#[test]
fn a_program_without_the_library_is_refused() {
    let own = i32::try_from(std::process::id()).unwrap();
    let process = stasis_linux::ProcessRef::open(own).unwrap().unwrap();
    let refusal = inspect(&process).unwrap_err();
    assert!(matches!(refusal, Refusal::NoDriver), "{refusal}");
    let refusal = build_id(&process).unwrap_err();
    assert!(matches!(refusal, Refusal::NoDriver), "{refusal}");
}

#[test]
fn a_traced_program_is_refused() {
    let workload = Workload::start(1, Variant::Lazy);
    let pid = Pid::from_raw(workload.pid());
    ptrace::seize(pid, ptrace::Options::empty()).unwrap();
    let refusal = inspect(&workload.process()).unwrap_err();
    assert!(matches!(refusal, Refusal::Traced), "{refusal}");
}

/// A slot that leads into memory that a program wrote code into.
#[test]
fn anothers_hook_is_refused() {
    let mut workload = Workload::start(1, Variant::Lazy);
    assert_eq!(workload.tell("out"), 0);
    let slots = inspect(&workload.process()).unwrap();
    let somewhere = workload.tell("contents");
    memory(&workload)
        .write_all_at(&somewhere.to_ne_bytes(), slots.memcpy.address)
        .unwrap();
    let refusal = inspect(&workload.process()).unwrap_err();
    assert!(
        matches!(refusal, Refusal::Hooked(Function::Memcpy)),
        "{refusal}"
    );
}

#[test]
fn a_program_that_has_ended_is_refused() {
    let workload = Workload::start(1, Variant::Lazy);
    let process = workload.process();
    drop(workload);
    assert!(matches!(inspect(&process).unwrap_err(), Refusal::Ended));
    assert!(matches!(build_id(&process).unwrap_err(), Refusal::Ended));
}
