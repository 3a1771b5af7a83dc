//! Locks all CUDA processes of a container together.
//!
//! `cuCheckpointProcessLock` blocks new work and waits for submitted work. Ranks wait for each
//! other in collectives, so they can only be locked at points where all have submitted the same
//! collectives; a rank that does not wait for its results is ahead of the others by the length of
//! its queue. So all ranks are locked at the same time: a rank whose lock call waits can submit
//! nothing more, and the others catch up with it. But a locked rank may be what an unlocked one is
//! waiting for, so it is unlocked again, and retried once another rank has locked ([`pace`]).

mod pace;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stasis_linux::ProcessRef;

use crate::cuda::failure::{Cause, JobError, ProcessFailure, Step};
use crate::cuda::process_set::as_found::{AsFound, SafeState};
use crate::cuda::process_set::{ProcessStates, bring_back};
use crate::cuda::threads::all_at_once;
use crate::cuda::{CudaError, CudaState, Driver};
use pace::{Pace, SHORTEST};

/// How much longer a locked process waits than the others try to lock: the error must name those
/// whose work did not finish.
const GRACE: Duration = Duration::from_secs(1);

/// The time that locking may take.
#[derive(Debug, Clone, Copy)]
pub struct LockLimits {
    /// For the whole job.
    pub deadline: Duration,
    /// The timeout of one lock call, and how long the locked processes first wait for the others.
    pub one_try: Duration,
}

/// Locks all that `find_members` returns; see [`crate::cuda::job::CudaJob::lock`].
pub(crate) fn lock_all(
    driver: &dyn Driver,
    limits: LockLimits,
    as_found: &AsFound,
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
            lost: bring_back(driver, &tried, as_found),
        };
        if let Some(fault) = unusable {
            return Err(give_up(fault));
        }
        let attempt = Attempt::new(driver, limits, as_found, start, tried.len());
        attempt.lock_all(&tried).map_err(give_up)?;
        // A process that has begun to use CUDA meanwhile is unlocked: try again, with it.
        members = find_members().map_err(give_up)?;
        let unlocked = |(_, state): &&(_, CudaState)| *state == CudaState::Running;
        let Some((late, _)) = members.iter().find(unlocked) else {
            return Ok(tried.into_iter().filter(|one| !one.is_gone()).collect());
        };
        if start.elapsed() >= limits.deadline {
            let cause = Cause::Deadline(limits.deadline);
            return Err(give_up(ProcessFailure::of(Step::Lock, late, cause)));
        }
    }
}

/// One attempt to lock processes, each from a thread of its own.
struct Attempt<'a> {
    driver: &'a dyn Driver,
    limits: LockLimits,
    as_found: &'a AsFound,
    start: Instant,
    round: Mutex<LockRound>,
    changed: Condvar,
}

/// The state that the threads share.
struct LockRound {
    /// Processes that are not locked.
    missing: usize,
    /// Locks so far, of all processes.
    locks: u64,
    /// One process failed, so the others give up.
    has_failed: bool,
    /// `None` before the first.
    pace: Option<Pace>,
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
        limits: LockLimits,
        as_found: &'a AsFound,
        start: Instant,
        missing: usize,
    ) -> Self {
        let round = LockRound {
            missing,
            locks: 0,
            has_failed: false,
            pace: None,
        };
        Self {
            driver,
            limits,
            as_found,
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
        let mut wait = self.limits.one_try;
        loop {
            if !self.lock(process)? {
                return Ok(());
            }
            self.mark_locked();
            let Some(locks) = self.wait_for_others(wait) else {
                return Ok(());
            };
            self.unlock_again(process)?;
            if self.start.elapsed() >= self.limits.deadline + GRACE {
                let cause = Cause::Deadline(self.limits.deadline);
                return Err(ProcessFailure::of(Step::Lock, process, cause));
            }
            let pace = self.pace();
            drop(self.wait_while(pace.unlocked, |round| {
                round.locks == locks && !round.has_failed
            }));
            wait = pace.locked;
        }
    }

    /// Locks the process; returns false if another process failed meanwhile.
    fn lock(&self, process: &ProcessRef) -> Result<bool, ProcessFailure> {
        while !self.round().has_failed {
            // No state query first: it takes as long as the lock, and the process may run ahead
            // during it.
            match self.driver.lock(process, self.limits.one_try) {
                Ok(()) => return Ok(true),
                Err(CudaError::IllegalState) if self.is_locked_or_checkpointed(process) => {
                    return Ok(true);
                }
                Err(CudaError::NotReady) if self.start.elapsed() < self.limits.deadline => {
                    thread::sleep(SHORTEST);
                }
                Err(CudaError::NotReady) => {
                    let cause = Cause::Deadline(self.limits.deadline);
                    return Err(ProcessFailure::of(Step::Lock, process, cause));
                }
                Err(error) => return Err(ProcessFailure::of(Step::Lock, process, error)),
            }
        }
        Ok(false)
    }

    fn is_locked_or_checkpointed(&self, process: &ProcessRef) -> bool {
        let state = self.driver.state(process);
        matches!(state, Ok(CudaState::Locked | CudaState::Checkpointed))
    }

    fn unlock_again(&self, process: &ProcessRef) -> Result<(), ProcessFailure> {
        let found = self.as_found.state_of(process);
        // One that was held before us keeps nobody waiting that it did not keep waiting then.
        if found != SafeState::Running || self.driver.unlock(process).is_ok() {
            return Ok(());
        }
        // A killed operation left the process CHECKPOINTED, or it has ended.
        let mut failed = bring_back(self.driver, std::slice::from_ref(process), self.as_found);
        failed.pop().map_or(Ok(()), Err)
    }

    /// Counts one more process as locked, or as ended.
    fn mark_locked(&self) {
        let mut round = self.round();
        round.missing -= 1;
        round.locks += 1;
        self.changed.notify_all();
    }

    /// Waits until all are locked or one has failed (`None`). Otherwise returns the number of locks
    /// so far, and the caller must unlock its process.
    fn wait_for_others(&self, wait: Duration) -> Option<u64> {
        let mut round = self.wait_while(wait, |round| !round.is_over());
        if round.is_over() {
            return None;
        }
        round.missing += 1;
        Some(round.locks)
    }

    fn fail(&self) {
        self.round().has_failed = true;
        self.changed.notify_all();
    }

    fn wait_while(
        &self,
        longest: Duration,
        condition: impl Fn(&LockRound) -> bool,
    ) -> MutexGuard<'_, LockRound> {
        let waited = self
            .changed
            .wait_timeout_while(self.round(), longest, |round| condition(round));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn round(&self) -> MutexGuard<'_, LockRound> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pace that all keep now; no wait is longer than one try, or a quarter of the time so far.
    fn pace(&self) -> Pace {
        let mut round = self.round();
        let kept = round.pace.filter(Pace::lasts);
        let longest = self.limits.one_try.max(self.start.elapsed() / 4);
        *round
            .pace
            .insert(kept.unwrap_or_else(|| Pace::random(longest)))
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
        let limits = LockLimits {
            deadline: Duration::from_millis(50),
            one_try: Duration::from_millis(5),
        };
        let as_found = AsFound::default();
        let attempt = Attempt::new(&driver, limits, &as_found, Instant::now(), 2);
        let fault = attempt.lock_all(&[process]).unwrap_err();
        assert!(matches!(fault.cause, Cause::Deadline(_)), "{fault}");
        assert!(driver.all_are(CudaState::Running));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
