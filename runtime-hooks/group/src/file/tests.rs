//! Tests the parent's decision, and how other processes read it.

use std::time::Duration;

use stasis_engine::operation::outcome::{Decision, decision_of};

use super::*;

fn member(id: &str) -> GroupMember {
    GroupMember {
        id: id.to_owned(),
        root: "/run/runc".into(),
        name: None,
        engine: None,
        image: id.to_owned(),
    }
}

fn begin(directory: &Path) -> NewGroup {
    let containers = vec![member("c1"), member("c2")];
    NewGroup::begin(directory, String::new(), AfterDump::Exit, containers).unwrap()
}

fn of(group: &NewGroup, id: &str) -> io::Result<SharedOutcome> {
    outcome_of(group.pending(), Path::new("/run/runc"), id)
}

#[test]
fn nothing_is_decided_before_the_parent_has() {
    let directory = tempfile::tempdir().unwrap();
    let new = begin(directory.path());
    let group = of(&new, "c1").unwrap();
    let decided = |id: &str| decision_of(directory.path(), id).unwrap();
    assert_eq!(decided(&group.id), None);
    new.complete().unwrap();
    let decision = group.wait_for_decision(Duration::ZERO).unwrap();
    assert_eq!(decision, Decision::Complete);
    assert_eq!(decided("another"), Some(Decision::Abandoned));
    // Too late to abandon.
    new.abandon();
    assert_eq!(decided(&group.id), Some(Decision::Complete));
}

#[test]
fn what_is_abandoned_cannot_be_completed() {
    let directory = tempfile::tempdir().unwrap();
    let new = begin(directory.path());
    let group = of(&new, "c2").unwrap();
    new.abandon();
    assert!(new.complete().is_err());
    let decision = group.wait_for_decision(Duration::ZERO).unwrap();
    assert_eq!(decision, Decision::Abandoned);
}

#[test]
fn a_group_that_is_complete_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (begin(directory.path()), begin(directory.path()));
    let (one, other) = (of(&first, "c1").unwrap(), of(&second, "c1").unwrap());
    first.complete().unwrap();
    let error = second.complete().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    second.abandon();
    let decided = |id: &str| decision_of(directory.path(), id).unwrap();
    assert_eq!(decided(&one.id), Some(Decision::Complete));
    assert_eq!(decided(&other.id), Some(Decision::Abandoned));
}

#[test]
fn a_parent_that_has_ended_has_decided_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let new = begin(directory.path());
    let mut group = of(&new, "c1").unwrap();
    group.parent.start_time += 1;
    let decision = group.wait_for_decision(Duration::MAX / 4).unwrap();
    assert_eq!(decision, Decision::Abandoned);
}

#[test]
fn a_container_that_the_file_does_not_name_is_none_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let new = begin(directory.path());
    assert!(of(&new, "c3").is_err());
    fs::write(new.pending(), "{").unwrap();
    assert!(of(&new, "c1").is_err());
}

#[test]
fn what_a_killed_parent_has_left_is_removed_and_what_another_has_begun_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let new = begin(directory.path());
    let error = clear_undecided(directory.path()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    let text = fs::read(new.pending()).unwrap();
    let mut group: GroupFile = serde_json::from_slice(&text).unwrap();
    group.parent.start_time += 1;
    fs::write(new.pending(), serde_json::to_vec(&group).unwrap()).unwrap();
    clear_undecided(directory.path()).unwrap();
    assert!(!new.pending().exists());
}
