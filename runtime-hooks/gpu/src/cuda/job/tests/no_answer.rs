//! Driver calls that do not return.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;
use crate::cuda::stopped::Stop;
use crate::cuda::watchdog::{CallLimits, WatchedDriver};

/// Makes a driver whose calls return also for a process that does not answer, and the driver behind
/// it.
fn watched(driver: FakeDriver) -> (Arc<FakeDriver>, WatchedDriver) {
    let driver = Arc::new(driver);
    let limit = Duration::from_secs(2);
    let limits = CallLimits {
        answer: limit,
        work: limit,
    };
    let watched = WatchedDriver::new(Arc::clone(&driver) as Arc<dyn Driver>, limits);
    (driver, watched)
}

#[test]
fn a_lock_that_does_not_come_back_is_reported_and_the_others_go_on() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver
        .hanging
        .lock()
        .unwrap()
        .insert((Step::Lock as u8, pids[1]));
    // While one hangs, another may well be refused on its account.
    driver.fail(Step::Lock, pids[0], &[CudaError::NotReady]);
    let (driver, watched) = watched(driver);
    let error = CudaJob::lock(&watched, LIMIT, InitialState::default(), || {
        sleepers.members(&watched)
    })
    .unwrap_err();
    assert_eq!(error.fault.pid, pids[1]);
    assert!(matches!(error.fault.cause, Cause::NoAnswer(_)), "{error}");
    assert_eq!(error.fault.step, Step::Lock);
    let lost: Vec<i32> = error.lost.iter().map(|fault| fault.pid).collect();
    assert_eq!(lost, [pids[1]], "it cannot be asked what it is");
    assert!(error.lost.iter().all(ProcessFailure::may_pass));
    assert!(driver.all_are(CudaState::Running));

    // The call goes on, and takes effect; then the process can be queried and brought back.
    driver.hanging.lock().unwrap().clear();
    let second = ProcessRef::open(pids[1]).unwrap().unwrap();
    while watched.state(&second) != Ok(CudaState::Locked) {
        thread::sleep(Duration::from_millis(1));
    }
    let members = sleepers.members(&watched).unwrap();
    let members: Vec<_> = members.into_iter().map(|(process, _)| process).collect();
    assert!(bring_back(&watched, &members, &InitialState::default()).is_empty());
    assert!(driver.all_are(CudaState::Running));
}

#[test]
fn a_gpu_checkpoint_that_does_not_come_back_is_reported_and_the_others_go_on() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver
        .hanging
        .lock()
        .unwrap()
        .insert((Step::Checkpoint as u8, pids[2]));
    let (driver, watched) = watched(driver);
    let job = CudaJob::lock(&watched, LIMIT, InitialState::default(), || {
        sleepers.members(&watched)
    })
    .unwrap();
    let error = job.checkpoint().unwrap_err();
    assert_eq!(
        (error.fault.step, error.fault.pid),
        (Step::Checkpoint, pids[2])
    );
    assert!(matches!(error.fault.cause, Cause::NoAnswer(_)), "{error}");
    for pid in &pids[..2] {
        assert_eq!(driver.states.lock().unwrap()[pid], CudaState::Running);
    }
    driver.hanging.lock().unwrap().clear();
}

#[test]
fn who_is_stopped_behind_the_look_at_it_is_said_to_be() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let process = ProcessRef::open(pid).unwrap().unwrap();
    let cause =
        |step| ProcessFailure::of(step, &process, CudaError::NoAnswer(Duration::ZERO)).cause;
    assert!(matches!(cause(Step::Query), Cause::NoAnswer(_)));
    kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
    while Stop::of(pid).unwrap().is_none() {
        thread::yield_now();
    }
    assert!(matches!(cause(Step::Query), Cause::Stopped(_)));
    // A call that changes something may still take effect.
    assert!(matches!(cause(Step::Lock), Cause::NoAnswer(_)));
    child.kill().unwrap();
    child.wait().unwrap();
}
