mod elsewhere;
mod every_error;
mod fake_driver;
pub(crate) mod fixtures;
mod initial_state;
mod no_answer;
mod sharing;

use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

pub(crate) use fake_driver::FakeDriver;

use super::*;
use crate::cuda::CudaError;
use crate::cuda::failure::Cause;
use crate::cuda::process_set::query_states;
use crate::cuda::stopped::Stop;

/// Real processes, so that pidfds are real; ended with the value.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn start(count: usize) -> Self {
        Self(
            (0..count)
                .map(|_| Command::new("sleep").arg("60").spawn().unwrap())
                .collect(),
        )
    }

    fn pids(&self) -> Vec<i32> {
        self.0
            .iter()
            .map(|child| i32::try_from(child.id()).unwrap())
            .collect()
    }

    fn processes(&self) -> Vec<ProcessRef> {
        let open = |pid| ProcessRef::open(pid).unwrap();
        self.pids().into_iter().filter_map(open).collect()
    }

    fn members(&self, driver: &dyn Driver) -> Result<ProcessStates, ProcessFailure> {
        query_states(driver, self.processes())
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const LIMIT: Duration = Duration::from_secs(60);
/// For processes that cannot be locked.
const SHORT: Duration = Duration::from_millis(300);

fn three(state: CudaState) -> (FakeDriver, Sleepers, Vec<i32>) {
    let driver = FakeDriver::default();
    let sleepers = Sleepers::start(4);
    let pids = sleepers.pids()[..3].to_vec();
    driver
        .states
        .lock()
        .unwrap()
        .extend(pids.iter().map(|pid| (*pid, state)));
    (driver, sleepers, pids)
}

#[test]
fn a_job_goes_round() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    let job = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        sleepers.members(&driver)
    })
    .unwrap();
    assert!(driver.all_are(CudaState::Locked));
    let job = job.checkpoint().unwrap();
    assert!(driver.all_are(CudaState::Checkpointed));
    let members: Vec<i32> = job.members().iter().map(ProcessRef::pid).collect();
    assert_eq!(members, pids, "the process without CUDA is no member");
    job.restore(&GpuMap::identity()).unwrap().unlock().unwrap();
    assert!(driver.all_are(CudaState::Running));
}

#[test]
fn who_is_locked_is_let_go_for_one_that_waits_for_it() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver.pending_on.lock().unwrap().insert(pids[1], pids[0]);
    let job = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        sleepers.members(&driver)
    });
    assert_eq!(job.unwrap().members().len(), 3);
    assert!(driver.all_are(CudaState::Locked));
}

#[test]
fn a_passed_deadline_leaves_nothing_locked_and_names_the_process() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver.fail(Step::Lock, pids[2], &[CudaError::NotReady; 10_000]);
    let error = CudaJob::lock(&driver, SHORT, InitialState::default(), || {
        sleepers.members(&driver)
    })
    .unwrap_err();
    assert_eq!(error.fault.pid, pids[2]);
    assert!(matches!(error.fault.cause, Cause::Deadline(_)), "{error}");
    assert!(error.lost.is_empty());
    assert!(driver.all_are(CudaState::Running));
}

#[test]
fn a_process_that_appears_during_a_try_is_locked_with_the_others() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    let late = sleepers.pids()[3];
    let mut looks = 0;
    let job = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        looks += 1;
        if looks == 2 {
            let mut states = driver.states.lock().unwrap();
            states.insert(late, CudaState::Running);
        }
        sleepers.members(&driver)
    });
    let job = job.unwrap();
    let members: Vec<i32> = job.members().iter().map(ProcessRef::pid).collect();
    assert_eq!(members, [&pids[..], &[late]].concat());
    assert!(driver.all_are(CudaState::Locked));
}

#[test]
fn what_cannot_be_saved_rolls_all_back() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver.fail(Step::Checkpoint, pids[1], &[CudaError::NotSupported]);
    let job = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        sleepers.members(&driver)
    })
    .unwrap();
    let error = job.checkpoint().unwrap_err();
    assert!(matches!(
        error.fault.cause,
        Cause::Driver(CudaError::NotSupported)
    ));
    assert!(error.lost.is_empty());
    assert!(driver.all_are(CudaState::Running));
}

#[test]
fn a_roll_back_that_fails_names_the_lost_process() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver.fail(Step::Checkpoint, pids[0], &[CudaError::NotSupported]);
    // The driver is asked twice.
    driver.fail(Step::Restore, pids[2], &[CudaError::OutOfMemory; 2]);
    let job = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        sleepers.members(&driver)
    })
    .unwrap();
    let error = job.checkpoint().unwrap_err();
    assert_eq!(error.fault.pid, pids[0]);
    assert_eq!(
        error.lost.iter().map(|fault| fault.pid).collect::<Vec<_>>(),
        [pids[2]]
    );
}

#[test]
fn what_a_killed_operation_left_is_taken_as_it_is() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver
        .states
        .lock()
        .unwrap()
        .insert(pids[0], CudaState::Locked);
    driver
        .states
        .lock()
        .unwrap()
        .insert(pids[1], CudaState::Checkpointed);
    let job = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        sleepers.members(&driver)
    })
    .unwrap();
    let job = job.checkpoint().unwrap();
    assert!(driver.all_are(CudaState::Checkpointed));
    assert!(job.roll_back().is_empty());
    assert!(driver.all_are(CudaState::Running));
}

#[test]
fn a_failed_process_is_refused_before_anything_is_locked() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver
        .states
        .lock()
        .unwrap()
        .insert(pids[1], CudaState::Failed);
    let error = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        sleepers.members(&driver)
    })
    .unwrap_err();
    assert!(
        matches!(error.fault.cause, Cause::State(CudaState::Failed)),
        "{error}"
    );
    assert_eq!(driver.states.lock().unwrap()[&pids[0]], CudaState::Running);
}

#[test]
fn a_process_that_ends_is_not_missed() {
    let (driver, mut sleepers, pids) = three(CudaState::Running);
    let members = sleepers.members(&driver).unwrap();
    sleepers.0[0].kill().unwrap();
    sleepers.0[0].wait().unwrap();
    driver.states.lock().unwrap().remove(&pids[0]);
    let mut first = Some(members);
    let job = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        match first.take() {
            Some(members) => Ok(members),
            None => sleepers.members(&driver),
        }
    });
    assert_eq!(job.unwrap().members().len(), 2);
}

fn stop(pid: i32) {
    let stop = nix::sys::signal::Signal::SIGSTOP;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), stop).unwrap();
    while Stop::of(pid).unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A driver that cannot report a state.
struct Mute;

impl Driver for Mute {
    fn state(&self, _: &ProcessRef) -> Result<CudaState, CudaError> {
        Err(CudaError::OperatingSystem)
    }
    fn restore_thread(&self, _: &ProcessRef) -> Result<i32, CudaError> {
        Err(CudaError::OperatingSystem)
    }
    fn lock(&self, _: &ProcessRef, _: Duration) -> Result<(), CudaError> {
        Ok(())
    }
    fn checkpoint(&self, _: &ProcessRef) -> Result<(), CudaError> {
        Ok(())
    }
    fn restore(&self, _: &ProcessRef, _: &GpuMap) -> Result<(), CudaError> {
        Ok(())
    }
    fn unlock(&self, _: &ProcessRef) -> Result<(), CudaError> {
        Ok(())
    }
}

#[test]
fn an_answer_other_than_no_cuda_is_never_taken_for_it() {
    let sleepers = Sleepers::start(1);
    let process = ProcessRef::open(sleepers.pids()[0]).unwrap().unwrap();
    let fault = query_states(&Mute, vec![process]).unwrap_err();
    assert!(
        matches!(fault.cause, Cause::Driver(CudaError::OperatingSystem)),
        "{fault}"
    );
}

#[test]
fn the_driver_is_not_asked_about_a_stopped_process_without_cuda() {
    let sleepers = Sleepers::start(1);
    let pid = sleepers.pids()[0];
    stop(pid);
    assert_eq!(Stop::of(pid).unwrap(), Some(Stop::Signal { pid }));
    let process = ProcessRef::open(pid).unwrap().unwrap();
    assert!(query_states(&Mute, vec![process]).unwrap().is_empty());
}

#[test]
fn a_look_that_fails_after_the_lock_leaves_nothing_locked() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    let mut looks = 0;
    let error = CudaJob::lock(&driver, LIMIT, InitialState::default(), || {
        looks += 1;
        if looks == 1 {
            return sleepers.members(&driver);
        }
        let process = ProcessRef::open(pids[0]).unwrap().unwrap();
        Err(ProcessFailure::of_query(
            &process,
            std::io::Error::other("no"),
        ))
    });
    assert!(matches!(error.unwrap_err().fault.cause, Cause::Io(_)));
    assert!(driver.all_are(CudaState::Running));
}
