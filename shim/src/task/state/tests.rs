use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::*;
use crate::runtime::process::RuntimeProcess;

/// An operation must be a process; nothing is done to it here.
fn operation() -> Operation {
    let caller = tokio::sync::watch::channel(()).1;
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    Operation::of(RuntimeProcess::new(std::process::id(), own), caller)
}

#[test]
fn a_checkpoint_leaves_the_task_as_it_found_it() {
    for (mut state, status) in [
        (LifecycleState::Running, Status::RUNNING),
        (LifecycleState::Paused, Status::PAUSED),
    ] {
        state.begin_checkpoint(operation()).unwrap();
        assert_eq!(state.status(), status);
        assert!(state.operation().is_some());
        state.end_checkpoint();
        assert_eq!(state.status(), status);
        assert!(state.operation().is_none());
    }
}

#[test]
fn during_a_checkpoint_nothing_else_begins() {
    let mut state = LifecycleState::Running;
    state.begin_checkpoint(operation()).unwrap();
    for refused in [
        state.may_start().map(drop),
        state.may_exec(),
        state.may_pause(),
        state.may_resume(),
        state.may_update(),
        state.may_checkpoint().map(drop),
        state.may_delete(),
        state.begin_checkpoint(operation()),
        state.begin_restore(operation()),
    ] {
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("being checkpointed"), "{said}");
    }
    state.may_add_exec().unwrap();
}

#[test]
fn a_failed_restore_can_be_tried_again() {
    let image = PathBuf::from("/images/one");
    let mut state = LifecycleState::Prepared {
        image: image.clone(),
    };
    state.begin_restore(operation()).unwrap();
    assert_eq!(state.status(), Status::CREATED);
    assert!(state.end_restore(Err(())).is_some());
    assert_eq!(state.may_start().unwrap(), StartFrom::Image(image));
    state.begin_restore(operation()).unwrap();
    assert!(state.end_restore(Ok(())).is_some());
    assert_eq!(state.status(), Status::RUNNING);
}

#[test]
fn only_what_does_not_run_is_deleted() {
    let stopped = LifecycleState::Stopped(Exit::killed());
    for state in [LifecycleState::Created, stopped] {
        state.may_delete().unwrap();
    }
    for state in [LifecycleState::Running, LifecycleState::Paused] {
        let said = state.may_delete().unwrap_err().to_string();
        assert!(said.starts_with("cannot delete a task that is "), "{said}");
    }
}
