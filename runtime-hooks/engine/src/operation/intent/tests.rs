use std::fs;
use std::process::{Child, Command};

use super::*;

/// A process with a pid of its own, ended with the value.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> (Self, ProcessRef) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        (Self(child), ProcessRef::open(pid).unwrap().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn described(process: &ProcessRef) -> CudaProcess {
    CudaProcess {
        pid: process.pid(),
        name: "python".to_owned(),
        gpus: Vec::new(),
    }
}

fn intent(members: Vec<Member>) -> Intent {
    Intent {
        members,
        freezer: FreezerState::Frozen,
    }
}

/// How an operation finds these processes, if an earlier one has left a record.
fn find(states: &ProcessStates, earlier: Option<Intent>) -> Intent {
    let earlier = earlier.map(|intent| intent.still_holding(states));
    let members = states.iter().map(|(process, state)| {
        let earlier = earlier.as_ref().and_then(|intent| intent.member(process));
        Member::new(
            process,
            SafeState::from(*state),
            described(process),
            earlier,
        )
    });
    intent(members.collect())
}

#[test]
fn it_is_read_as_it_was_written_and_an_empty_file_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let (_sleeper, process) = Sleeper::start();
    let written = find(&vec![(process, CudaState::Locked)], None);
    written.write(directory.path()).unwrap();
    assert_eq!(Intent::read(directory.path()).unwrap(), Some(written));
    fs::write(directory.path().join(FILE_NAME), "").unwrap();
    assert_eq!(Intent::read(directory.path()).unwrap(), None);
    fs::write(directory.path().join(FILE_NAME), "{").unwrap();
    Intent::read(directory.path()).unwrap_err();
}

#[test]
fn what_the_operator_has_suspended_stays_the_operators_through_other_operations() {
    let (_first, suspended) = Sleeper::start();
    let (_second, running) = Sleeper::start();
    let toggled = find(&vec![(suspended.clone(), CudaState::Running)], None);
    let parked = toggled.left_to(PendingOn::Operator);
    let states = vec![
        (suspended.clone(), CudaState::Checkpointed),
        (running.clone(), CudaState::Running),
    ];
    let checkpoint = find(&states, Some(parked.clone()));
    let initial_state = checkpoint.initial_state();
    assert_eq!(initial_state.state_of(&suspended), SafeState::Checkpointed);
    assert_eq!(initial_state.state_of(&running), SafeState::Running);
    let moved: Vec<i32> = checkpoint.back_to_gpu().map(|moved| moved.pid).collect();
    assert_eq!(moved, [running.pid()]);
    // Whether it succeeds, fails, or waits for a resume.
    let settled = checkpoint.clone().settled().unwrap();
    assert_eq!(settled.members, parked.members);
    let waiting = checkpoint.left_to(PendingOn::Resume);
    assert!(waiting.concerns_resume());
    let resumed = waiting.resumed();
    assert_eq!(
        resumed.initial_state().state_of(&suspended),
        SafeState::Checkpointed
    );
    assert_eq!(
        resumed.initial_state().state_of(&running),
        SafeState::Running
    );
    assert_eq!(resumed.settled().unwrap().members, parked.members);
    assert!(!parked.concerns_resume());
    // The operator takes up everything.
    let taken_up = parked.taken_up(SafeState::Running);
    assert_eq!(
        taken_up.initial_state().state_of(&suspended),
        SafeState::Running
    );
    assert_eq!(taken_up.settled(), None);
}

#[test]
fn what_an_interrupted_operation_left_was_found_as_that_one_found_it() {
    let (_first, ran) = Sleeper::start();
    let (_second, locked) = Sleeper::start();
    let states = |first, second| vec![(ran.clone(), first), (locked.clone(), second)];
    let killed = find(&states(CudaState::Running, CudaState::Locked), None);
    let left = states(CudaState::Checkpointed, CudaState::Checkpointed);
    let next = find(&left, Some(killed));
    assert_eq!(next.initial_state().state_of(&ran), SafeState::Running);
    assert_eq!(next.initial_state().state_of(&locked), SafeState::Locked);
    assert_eq!(next.settled(), None);
}

#[test]
fn what_somebody_else_has_taken_up_meanwhile_is_not_held_any_more() {
    let (_sleeper, process) = Sleeper::start();
    let states = |state| vec![(process.clone(), state)];
    let parked = find(&states(CudaState::Running), None).left_to(PendingOn::Operator);
    for state in [CudaState::Running, CudaState::Locked] {
        let next = find(&states(state), Some(parked.clone()));
        assert_eq!(next.members[0].found, SafeState::from(state));
        assert_eq!(next.members[0].pending_on, PendingOn::Operation);
    }
}

#[test]
fn what_nobody_recorded_stays_as_it_is_and_leaves_no_record() {
    let (_sleeper, process) = Sleeper::start();
    let found = find(&vec![(process.clone(), CudaState::Checkpointed)], None);
    assert_eq!(
        found.initial_state().state_of(&process),
        SafeState::Checkpointed
    );
    assert!(found.keeps_some_off_gpu());
    assert_eq!(found.clone().left_to(PendingOn::Resume).settled(), None);
    assert_eq!(found.settled(), None);
}
