//! Every call of the driver with every error: all processes are as they were found, or the error
//! names the one that is not, and only that one.

use std::mem;

use super::*;

/// Errors that the checkpoint calls are documented or were seen to give, and some of any call.
const CODES: [i32; 15] = [
    1, 2, 3, 100, 201, 304, 400, 401, 600, 719, 800, 801, 803, 999, 4711,
];

fn errors() -> impl Iterator<Item = CudaError> {
    CODES.into_iter().map(CudaError::from_code)
}

/// Three processes, the second of which gets this error from a call: once, or each time.
struct Faulty {
    driver: FakeDriver,
    sleepers: Sleepers,
    pids: Vec<i32>,
}

impl Faulty {
    fn new(step: Step, error: CudaError, times: usize) -> Self {
        let (driver, sleepers, pids) = three(CudaState::Running);
        driver.fail(step, pids[1], &vec![error; times]);
        Self {
            driver,
            sleepers,
            pids,
        }
    }

    fn lock(&self) -> Result<CudaJob<'_, Locked>, JobError> {
        self.lock_within(LIMIT)
    }

    fn lock_within(&self, deadline: Duration) -> Result<CudaJob<'_, Locked>, JobError> {
        let members = || self.sleepers.members(&self.driver);
        CudaJob::lock(&self.driver, deadline, InitialState::default(), members)
    }

    fn restore(&self) -> Result<CudaJob<'_, Locked>, JobError> {
        // Locking unlocks locked processes if the others are slow, on a busy machine.
        let script = mem::take(&mut *self.driver.script.lock().unwrap());
        let job = self.lock().and_then(CudaJob::checkpoint).unwrap();
        *self.driver.script.lock().unwrap() = script;
        job.restore(&GpuMap::identity())
    }

    fn are_as_found(&self, failed: &JobError, error: CudaError) {
        assert!(failed.lost.is_empty(), "{error}: {:?}", failed.lost);
        assert!(self.driver.all_are(CudaState::Running), "{error}");
    }

    /// All others are as they were found.
    fn only_the_second_is_lost(&self, failed: &JobError, error: CudaError) {
        let lost: Vec<i32> = failed.lost.iter().map(|lost| lost.pid).collect();
        assert_eq!(lost, [self.pids[1]], "{error}");
        let states = self.driver.states.lock().unwrap();
        for pid in [self.pids[0], self.pids[2]] {
            assert_eq!(states[&pid], CudaState::Running, "{error}");
        }
    }
}

const ALWAYS: usize = 1000;

#[test]
fn of_a_lock() {
    for error in errors() {
        let faulty = Faulty::new(Step::Lock, error, ALWAYS);
        // One of the errors means that the lock is not ready yet.
        faulty.are_as_found(&faulty.lock_within(SHORT).unwrap_err(), error);
    }
}

#[test]
fn of_a_gpu_checkpoint() {
    for error in errors() {
        let faulty = Faulty::new(Step::Checkpoint, error, ALWAYS);
        let failed = faulty.lock().unwrap().checkpoint().unwrap_err();
        faulty.are_as_found(&failed, error);
    }
}

#[test]
fn of_a_gpu_restore_once() {
    for error in errors() {
        let faulty = Faulty::new(Step::Restore, error, 1);
        faulty.are_as_found(&faulty.restore().unwrap_err(), error);
    }
}

/// A process that is not known to be lost is tried again.
#[test]
fn of_each_gpu_restore() {
    for error in errors() {
        let faulty = Faulty::new(Step::Restore, error, ALWAYS);
        let failed = faulty.restore().unwrap_err();
        faulty.only_the_second_is_lost(&failed, error);
        let may_pass = error == CudaError::NotPermitted;
        assert_eq!(failed.lost[0].may_pass(), may_pass, "{error}");
    }
}

#[test]
fn of_an_unlock_once() {
    for error in errors() {
        let faulty = Faulty::new(Step::Unlock, error, 1);
        let failed = faulty.restore().unwrap().unlock().unwrap_err();
        faulty.are_as_found(&failed, error);
    }
}

#[test]
fn of_each_unlock() {
    for error in errors() {
        let faulty = Faulty::new(Step::Unlock, error, ALWAYS);
        let failed = faulty.restore().unwrap().unlock().unwrap_err();
        faulty.only_the_second_is_lost(&failed, error);
    }
}

/// The way back of a resume, a rollback and a recovery; the second process is in this state.
fn back_from(state: CudaState, step: Step, error: CudaError, times: usize) -> Vec<ProcessFailure> {
    let faulty = Faulty::new(step, error, times);
    faulty.driver.set(faulty.pids[1], state);
    let lost = bring_back(
        &faulty.driver,
        &faulty.sleepers.processes(),
        &InitialState::default(),
    );
    let is_back = faulty.driver.all_are(CudaState::Running);
    assert_eq!(is_back, lost.is_empty(), "{state} {step} {error}");
    lost
}

const WAYS_BACK: [(CudaState, Step); 5] = [
    (CudaState::Checkpointed, Step::Query),
    (CudaState::Checkpointed, Step::Restore),
    (CudaState::Checkpointed, Step::Unlock),
    (CudaState::Locked, Step::Query),
    (CudaState::Locked, Step::Unlock),
];

/// No process is lost for one wrong answer.
#[test]
fn of_the_way_back_once() {
    for (state, step) in WAYS_BACK {
        for error in errors() {
            let lost = back_from(state, step, error, 1);
            assert!(lost.is_empty(), "{state} {step} {error}: {lost:?}");
        }
    }
}

#[test]
fn of_the_way_back_each_time() {
    for (state, step) in WAYS_BACK {
        // A process without CUDA needs nothing.
        for error in errors().filter(|error| *error != CudaError::NotInitialized) {
            let lost = back_from(state, step, error, ALWAYS);
            assert_eq!(lost.len(), 1, "{state} {step} {error}: {lost:?}");
            assert_eq!(lost[0].step, step, "{state} {error}");
        }
    }
}

/// Only one error means that a process does not use CUDA.
#[test]
fn of_a_state_query() {
    for error in errors() {
        let faulty = Faulty::new(Step::Query, error, ALWAYS);
        match faulty.lock() {
            Ok(job) => {
                assert_eq!(error, CudaError::NotInitialized);
                assert_eq!(job.members().len(), 2);
            }
            Err(failed) => faulty.are_as_found(&failed, error),
        }
    }
}
