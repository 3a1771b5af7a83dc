use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use std::thread;
use std::time::Duration;

use super::*;
use crate::cuda::CudaError;
use crate::fault::Cause;
use crate::members::look;
use crate::stop::Stop;
use crate::watchdog::{CallLimits, WatchedDriver};

/// A driver with the real one's state machine, for processes that are mere sleepers.
#[derive(Default)]
struct FakeDriver {
    states: Mutex<BTreeMap<i32, CudaState>>,
    /// Errors to give, in order, for (step, pid); then the call works.
    script: Mutex<BTreeMap<(u8, i32), Vec<CudaError>>>,
    /// The (step, pid) whose calls do not come back while it is in here.
    hanging: Mutex<BTreeSet<(u8, i32)>>,
    /// Who cannot be locked before another has been let go.
    waits_for: Mutex<BTreeMap<i32, i32>>,
}

impl FakeDriver {
    fn fail(&self, step: Step, pid: i32, errors: &[CudaError]) {
        self.script
            .lock()
            .unwrap()
            .insert((step as u8, pid), errors.to_vec());
    }

    fn go(&self, step: Step, pid: i32, from: CudaState, to: CudaState) -> Result<(), CudaError> {
        while self.hanging.lock().unwrap().contains(&(step as u8, pid)) {
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(errors) = self.script.lock().unwrap().get_mut(&(step as u8, pid))
            && !errors.is_empty()
        {
            return Err(errors.remove(0));
        }
        let mut states = self.states.lock().unwrap();
        match states.get(&pid) {
            None => Err(CudaError::NotInitialized),
            Some(state) if *state == from => {
                states.insert(pid, to);
                Ok(())
            }
            Some(_) => Err(CudaError::IllegalState),
        }
    }

    fn all_are(&self, state: CudaState) -> bool {
        self.states
            .lock()
            .unwrap()
            .values()
            .all(|found| *found == state)
    }
}

impl Driver for FakeDriver {
    fn state(&self, pid: i32) -> Result<CudaState, CudaError> {
        self.states
            .lock()
            .unwrap()
            .get(&pid)
            .copied()
            .ok_or(CudaError::NotInitialized)
    }
    fn restore_thread(&self, pid: i32) -> Result<i32, CudaError> {
        Ok(pid)
    }
    fn lock(&self, pid: i32, timeout: Duration) -> Result<(), CudaError> {
        if self.waits_for.lock().unwrap().contains_key(&pid) {
            thread::sleep(timeout);
            return Err(CudaError::NotReady);
        }
        self.go(Step::Lock, pid, CudaState::Running, CudaState::Locked)
    }
    fn checkpoint(&self, pid: i32) -> Result<(), CudaError> {
        self.go(
            Step::Checkpoint,
            pid,
            CudaState::Locked,
            CudaState::Checkpointed,
        )
    }
    fn restore(&self, pid: i32, _: &GpuMap) -> Result<(), CudaError> {
        self.go(
            Step::Restore,
            pid,
            CudaState::Checkpointed,
            CudaState::Locked,
        )
    }
    fn unlock(&self, pid: i32) -> Result<(), CudaError> {
        let mut waits_for = self.waits_for.lock().unwrap();
        waits_for.retain(|_, other| *other != pid);
        drop(waits_for);
        self.go(Step::Unlock, pid, CudaState::Locked, CudaState::Running)
    }
}

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

    fn members(&self, driver: &dyn Driver) -> Result<Members, Fault> {
        let open = |pid| ProcessRef::open(pid).unwrap();
        look(driver, self.pids().into_iter().filter_map(open).collect())
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

const LIMITS: LockLimits = LockLimits {
    deadline: Duration::from_millis(300),
    one_try: Duration::from_millis(10),
};

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
    let job = CudaJob::lock(&driver, LIMITS, || sleepers.members(&driver)).unwrap();
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
    driver.waits_for.lock().unwrap().insert(pids[1], pids[0]);
    let job = CudaJob::lock(&driver, LIMITS, || sleepers.members(&driver));
    assert_eq!(job.unwrap().members().len(), 3);
    assert!(driver.all_are(CudaState::Locked));
}

#[test]
fn a_passed_deadline_leaves_nothing_locked_and_names_the_process() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    driver.fail(Step::Lock, pids[2], &[CudaError::NotReady; 10_000]);
    let error = CudaJob::lock(&driver, LIMITS, || sleepers.members(&driver)).unwrap_err();
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
    let job = CudaJob::lock(&driver, LIMITS, || {
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
    let job = CudaJob::lock(&driver, LIMITS, || sleepers.members(&driver)).unwrap();
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
    driver.fail(Step::Restore, pids[2], &[CudaError::OutOfMemory]);
    let job = CudaJob::lock(&driver, LIMITS, || sleepers.members(&driver)).unwrap();
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
    let job = CudaJob::lock(&driver, LIMITS, || sleepers.members(&driver)).unwrap();
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
    let error = CudaJob::lock(&driver, LIMITS, || sleepers.members(&driver)).unwrap_err();
    assert!(
        matches!(error.fault.cause, Cause::State(CudaState::Failed)),
        "{error}"
    );
    assert_eq!(driver.state(pids[0]), Ok(CudaState::Running));
}

#[test]
fn a_process_that_ends_is_not_missed() {
    let (driver, mut sleepers, pids) = three(CudaState::Running);
    let members = sleepers.members(&driver).unwrap();
    sleepers.0[0].kill().unwrap();
    sleepers.0[0].wait().unwrap();
    driver.states.lock().unwrap().remove(&pids[0]);
    let mut first = Some(members);
    let job = CudaJob::lock(&driver, LIMITS, || match first.take() {
        Some(members) => Ok(members),
        None => sleepers.members(&driver),
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

/// A driver that cannot tell.
struct Mute;

impl Driver for Mute {
    fn state(&self, _: i32) -> Result<CudaState, CudaError> {
        Err(CudaError::OperatingSystem)
    }
    fn restore_thread(&self, _: i32) -> Result<i32, CudaError> {
        Err(CudaError::OperatingSystem)
    }
    fn lock(&self, _: i32, _: Duration) -> Result<(), CudaError> {
        Ok(())
    }
    fn checkpoint(&self, _: i32) -> Result<(), CudaError> {
        Ok(())
    }
    fn restore(&self, _: i32, _: &GpuMap) -> Result<(), CudaError> {
        Ok(())
    }
    fn unlock(&self, _: i32) -> Result<(), CudaError> {
        Ok(())
    }
}

#[test]
fn an_answer_other_than_no_cuda_is_never_taken_for_it() {
    let sleepers = Sleepers::start(1);
    let process = ProcessRef::open(sleepers.pids()[0]).unwrap().unwrap();
    let fault = look(&Mute, vec![process]).unwrap_err();
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
    assert!(look(&Mute, vec![process]).unwrap().is_empty());
}

/// Calls on a driver with one process that does not answer come back, with the driver to look behind it.
fn watched(driver: FakeDriver) -> (Arc<FakeDriver>, WatchedDriver) {
    let driver = Arc::new(driver);
    let limit = Duration::from_millis(500);
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
    let error = CudaJob::lock(&watched, LIMITS, || sleepers.members(&watched)).unwrap_err();
    assert_eq!(error.fault.pid, pids[1]);
    assert!(matches!(error.fault.cause, Cause::NoAnswer(_)), "{error}");
    assert_eq!(error.fault.step, Step::Lock);
    let lost: Vec<i32> = error.lost.iter().map(|fault| fault.pid).collect();
    assert_eq!(lost, [pids[1]], "it cannot be asked what it is");
    assert!(error.lost.iter().all(Fault::may_pass));
    assert!(driver.all_are(CudaState::Running));

    // The call goes on, and takes effect; from then on the process can be asked and given back.
    driver.hanging.lock().unwrap().clear();
    while watched.state(pids[1]) != Ok(CudaState::Locked) {
        thread::sleep(Duration::from_millis(1));
    }
    let members = sleepers.members(&watched).unwrap();
    let members: Vec<_> = members.into_iter().map(|(process, _)| process).collect();
    assert!(revive(&watched, &members).is_empty());
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
    let job = CudaJob::lock(&watched, LIMITS, || sleepers.members(&watched)).unwrap();
    let error = job.checkpoint().unwrap_err();
    assert_eq!(
        (error.fault.step, error.fault.pid),
        (Step::Checkpoint, pids[2])
    );
    assert!(matches!(error.fault.cause, Cause::NoAnswer(_)), "{error}");
    for pid in &pids[..2] {
        assert_eq!(driver.state(*pid), Ok(CudaState::Running));
    }
    driver.hanging.lock().unwrap().clear();
}

#[test]
fn a_look_that_fails_after_the_lock_leaves_nothing_locked() {
    let (driver, sleepers, pids) = three(CudaState::Running);
    let mut looks = 0;
    let error = CudaJob::lock(&driver, LIMITS, || {
        looks += 1;
        if looks == 1 {
            return sleepers.members(&driver);
        }
        let process = ProcessRef::open(pids[0]).unwrap().unwrap();
        Err(Fault::of_look(&process, std::io::Error::other("no")))
    });
    assert!(matches!(error.unwrap_err().fault.cause, Cause::Io(_)));
    assert!(driver.all_are(CudaState::Running));
}
