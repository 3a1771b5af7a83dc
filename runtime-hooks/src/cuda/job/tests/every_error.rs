//! Every call of the driver with every error: all processes are as they were found, or the error
//! names the one that is not, and only that one.

use super::*;

/// Those that the checkpoint calls are documented or were seen to give, and some that any call may.
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
        let members = || self.sleepers.members(&self.driver);
        CudaJob::lock(&self.driver, LIMITS, AsFound::default(), members)
    }

    fn restore(&self) -> Result<CudaJob<'_, Locked>, JobError> {
        let job = self.lock().and_then(CudaJob::checkpoint).unwrap();
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
        faulty.are_as_found(&faulty.lock().unwrap_err(), error);
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

/// What is not known to be lost is tried again.
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
