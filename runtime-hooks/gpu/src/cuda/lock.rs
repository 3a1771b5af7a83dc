//! Locks all CUDA processes of a container together, by steps.
//!
//! `cuCheckpointProcessLock` holds new calls and waits for submitted work. Ranks wait for each
//! other in collectives, so a rank whose work cannot end before another one submits its part is
//! locked only after that. So the lock of every rank is under way from the beginning, and a rank
//! that is LOCKED while others still wait takes a step: it is unlocked and at once locked again, so
//! that only the call proceeds that the driver has held. So ranks that are behind reach the
//! collective that the others wait for, and no rank runs ahead.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stasis_linux::ProcessRef;

use crate::cuda::failure::{Cause, JobError, ProcessFailure, Step};
use crate::cuda::process_set::initial_state::{InitialState, SafeState};
use crate::cuda::process_set::{ProcessStates, bring_back};
use crate::cuda::threads::all_at_once;
use crate::cuda::{CudaError, CudaState, Driver};

/// How long a locked process waits for the others before it takes a step: the driver's calls take a
/// millisecond or two, so a process that takes one is locked again by then. Two ranks of a training
/// job are locked after one step, or eight at most (two H100, driver 580.159.04).
const STEP: Duration = Duration::from_millis(10);
/// The most time of a lock before a check whether another one has failed. The driver lets calls
/// through in between, so checks are to be rare.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after a call that did not wait.
const PAUSE: Duration = Duration::from_millis(1);
/// How much longer a locked process waits than the others try to lock: the error must name the
/// processes whose work did not finish.
const GRACE: Duration = Duration::from_secs(1);

/// Locks all that `find_members` returns; see [`crate::cuda::job::CudaJob::lock`].
pub fn lock_all(
    driver: &dyn Driver,
    deadline: Duration,
    initial_state: &InitialState,
    mut find_members: impl FnMut() -> Result<ProcessStates, ProcessFailure>,
) -> Result<Vec<ProcessRef>, JobError> {
    let start = Instant::now();
    let mut members = find_members().map_err(|fault| JobError {
        fault,
        lost: Vec::new(),
    })?;
    loop {
        let unusable = find_unusable(&members);
        let tried: Vec<_> = members.into_iter().map(|(process, _)| process).collect();
        let give_up = |fault| JobError {
            fault,
            lost: bring_back(driver, &tried, initial_state),
        };
        if let Some(fault) = unusable {
            return Err(give_up(fault));
        }
        let attempt = Attempt::new(driver, deadline, initial_state, start, tried.len());
        attempt.lock_all(&tried).map_err(give_up)?;
        // A process that has begun to use CUDA meanwhile is unlocked: try again, with it.
        members = find_members().map_err(give_up)?;
        let unlocked = |(_, state): &&(_, CudaState)| *state == CudaState::Running;
        let Some((late, _)) = members.iter().find(unlocked) else {
            return Ok(tried.into_iter().filter(|one| !one.is_gone()).collect());
        };
        if start.elapsed() >= deadline {
            let cause = Cause::Deadline(deadline);
            return Err(give_up(ProcessFailure::of(Step::Lock, late, cause)));
        }
    }
}

/// One attempt to lock processes, each from a thread of its own.
struct Attempt<'a> {
    driver: &'a dyn Driver,
    deadline: Duration,
    initial_state: &'a InitialState,
    start: Instant,
    round: Mutex<LockRound>,
    changed: Condvar,
}

/// The state that the threads share.
struct LockRound {
    /// Processes that are not locked.
    missing: usize,
    /// One process failed, so the others give up.
    has_failed: bool,
}

impl LockRound {
    /// Whether all are locked, and stay so, or one failed.
    fn is_over(&self) -> bool {
        self.missing == 0 || self.has_failed
    }
}

impl<'a> Attempt<'a> {
    fn new(
        driver: &'a dyn Driver,
        deadline: Duration,
        initial_state: &'a InitialState,
        start: Instant,
        missing: usize,
    ) -> Self {
        let round = LockRound {
            missing,
            has_failed: false,
        };
        Self {
            driver,
            deadline,
            initial_state,
            start,
            round: Mutex::new(round),
            changed: Condvar::new(),
        }
    }

    fn lock_all(&self, tried: &[ProcessRef]) -> Result<(), ProcessFailure> {
        let lock_one = |process: &ProcessRef| {
            let met = self.lock_with_others(process);
            match met {
                Err(_) if process.is_gone() => {
                    self.mark_locked();
                    return Ok(());
                }
                Err(_) => self.fail(),
                Ok(()) => {}
            }
            met
        };
        let failures = all_at_once(Step::Lock, tried, lock_one, || self.fail());
        // If one process cannot be locked at all, others may run late because they wait for it.
        let is_late = |fault: &ProcessFailure| matches!(fault.cause, Cause::Deadline(_));
        failures.into_iter().min_by_key(is_late).map_or(Ok(()), Err)
    }

    /// Returns when all processes are locked, one has failed, or the deadline has passed.
    fn lock_with_others(&self, process: &ProcessRef) -> Result<(), ProcessFailure> {
        // A process that was held before us delays the same processes as before.
        let takes_steps = self.initial_state.state_of(process) == SafeState::Running;
        let step = match takes_steps {
            true => STEP,
            false => self.deadline + GRACE,
        };
        while self.lock(process)? {
            self.mark_locked();
            if self.are_met_within(step) {
                break;
            }
            if takes_steps {
                self.unlock_again(process)?;
            }
            if self.start.elapsed() >= self.deadline + GRACE {
                return Err(self.late(process));
            }
        }
        Ok(())
    }

    /// Locks the process; returns false if another process failed meanwhile.
    fn lock(&self, process: &ProcessRef) -> Result<bool, ProcessFailure> {
        while !self.round().has_failed {
            let left = self.deadline.saturating_sub(self.start.elapsed());
            // No state query first: it takes as long as the lock, and the process may run ahead
            // during it.
            match self.driver.lock(process, left.clamp(PAUSE, LOOK)) {
                Ok(()) => return Ok(true),
                Err(CudaError::IllegalState) if self.is_locked_or_checkpointed(process) => {
                    return Ok(true);
                }
                Err(CudaError::NotReady) if self.start.elapsed() < self.deadline => {
                    thread::sleep(PAUSE);
                }
                Err(CudaError::NotReady) => return Err(self.late(process)),
                Err(error) => return Err(ProcessFailure::of(Step::Lock, process, error)),
            }
        }
        Ok(false)
    }

    fn late(&self, process: &ProcessRef) -> ProcessFailure {
        ProcessFailure::of(Step::Lock, process, Cause::Deadline(self.deadline))
    }

    fn is_locked_or_checkpointed(&self, process: &ProcessRef) -> bool {
        let state = self.driver.state(process);
        matches!(state, Ok(CudaState::Locked | CudaState::Checkpointed))
    }

    fn unlock_again(&self, process: &ProcessRef) -> Result<(), ProcessFailure> {
        // The process was left CHECKPOINTED by a killed operation, or has ended: others can seldom
        // wait for it, and it takes long to bring it back.
        if self.driver.unlock(process).is_ok() || self.start.elapsed() < self.deadline / 2 {
            return Ok(());
        }
        let mut failed = bring_back(
            self.driver,
            std::slice::from_ref(process),
            self.initial_state,
        );
        failed.pop().map_or(Ok(()), Err)
    }

    /// Counts one more process as locked, or as ended.
    fn mark_locked(&self) {
        let mut round = self.round();
        round.missing -= 1;
        self.changed.notify_all();
    }

    /// Waits until all are locked or one has failed. Otherwise the caller is to unlock its process.
    fn are_met_within(&self, step: Duration) -> bool {
        let round = self.round();
        let waited = self
            .changed
            .wait_timeout_while(round, step, |round| !round.is_over());
        let mut round = waited.unwrap_or_else(PoisonError::into_inner).0;
        if !round.is_over() {
            round.missing += 1;
            return false;
        }
        true
    }

    fn fail(&self) {
        self.round().has_failed = true;
        self.changed.notify_all();
    }

    fn round(&self) -> MutexGuard<'_, LockRound> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds a process whose state does not allow a lock.
fn find_unusable(members: &ProcessStates) -> Option<ProcessFailure> {
    let mut unusable = members
        .iter()
        .filter(|(_, state)| matches!(state, CudaState::Failed | CudaState::Unknown(_)));
    unusable
        .next()
        .map(|(process, state)| ProcessFailure::of(Step::Lock, process, Cause::State(*state)))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::cuda::job::tests::FakeDriver;

    fn sleeper() -> (Child, ProcessRef) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        (child, ProcessRef::open(pid).unwrap().unwrap())
    }

    #[test]
    fn a_process_stops_waiting_for_one_that_never_locks() {
        let (mut child, process) = sleeper();
        let driver = FakeDriver::default();
        driver.set(process.pid(), CudaState::Running);
        let deadline = Duration::from_millis(50);
        let initial_state = InitialState::default();
        let attempt = Attempt::new(&driver, deadline, &initial_state, Instant::now(), 2);
        let fault = attempt.lock_all(&[process]).unwrap_err();
        assert!(matches!(fault.cause, Cause::Deadline(_)), "{fault}");
        assert!(driver.all_are(CudaState::Running));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
