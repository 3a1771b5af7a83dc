//! Locking all CUDA processes of a container in one go.
//!
//! The driver's lock lets no more work be submitted and waits for what was. Ranks wait for each other in
//! collectives, so they can only be locked at points where all have submitted the same ones, and a rank that does not wait for its
//! results is ahead of the others at any time, by what its queue holds. So all are locked at the same time, and stay where they
//! are: one whose lock waits can submit nothing more, and the others catch up with it. Who is locked while another is not may be what
//! that one waits for: it is let go, and locked again as soon as another is locked, since it may just have caught up.
//!
//! How long to wait for others depends on the job, whose steps may take milliseconds or seconds. So all waits are random, of every
//! order of magnitude.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::{CudaError, CudaState, Driver};
use crate::fault::{Cause, Fault, JobError, Step};
use crate::members::{Members, for_each, revive, revive_one};
use crate::process::ProcessRef;

/// The shortest wait: what calls of the driver take.
const SHORTEST: Duration = Duration::from_millis(1);

/// The time that locking may take.
#[derive(Debug, Clone, Copy)]
pub struct LockLimits {
    /// For the whole job.
    pub deadline: Duration,
    /// How long all that are locked wait at first for those that are not; and for how long the driver is asked at a time.
    pub one_try: Duration,
}

/// Locks all that `again` finds; see [`crate::job::CudaJob::lock`].
pub(crate) fn lock_all(
    driver: &dyn Driver,
    limits: LockLimits,
    mut again: impl FnMut() -> Result<Members, Fault>,
) -> Result<Vec<ProcessRef>, JobError> {
    let start = Instant::now();
    let mut members = again().map_err(|fault| JobError {
        fault,
        lost: Vec::new(),
    })?;
    loop {
        let stuck = stuck(&members);
        let tried: Vec<_> = members.into_iter().map(|(process, _)| process).collect();
        let give_up = |fault| JobError {
            fault,
            lost: revive(driver, &tried),
        };
        if let Some(fault) = stuck {
            return Err(give_up(fault));
        }
        let attempt = Attempt {
            driver,
            limits,
            start,
            meeting: Mutex::new(Meeting {
                missing: tried.len(),
                arrivals: 0,
                has_failed: false,
            }),
            changed: Condvar::new(),
        };
        attempt.lock_all(&tried).map_err(give_up)?;
        // A process that began with CUDA meanwhile runs unlocked: once more, with it.
        members = again().map_err(give_up)?;
        let unlocked = |(_, state): &&(_, CudaState)| *state == CudaState::Running;
        let Some((newcomer, _)) = members.iter().find(unlocked) else {
            return Ok(tried.into_iter().filter(|one| !one.is_gone()).collect());
        };
        if start.elapsed() >= limits.deadline {
            let cause = Cause::Deadline(limits.deadline);
            return Err(give_up(Fault::of(Step::Lock, newcomer, cause)));
        }
    }
}

/// Locking some processes, each from a thread of its own.
struct Attempt<'a> {
    driver: &'a dyn Driver,
    limits: LockLimits,
    start: Instant,
    meeting: Mutex<Meeting>,
    changed: Condvar,
}

/// What the threads know of each other.
struct Meeting {
    /// How many are not locked.
    missing: usize,
    /// How often one was.
    arrivals: u64,
    /// One failed: nobody needs to be locked any more.
    has_failed: bool,
}

impl Meeting {
    /// Whether all are locked, and stay so, or one failed.
    fn is_over(&self) -> bool {
        self.missing == 0 || self.has_failed
    }
}

impl Attempt<'_> {
    fn lock_all(&self, tried: &[ProcessRef]) -> Result<(), Fault> {
        let faults = for_each(tried, |process| {
            let met = self.meet(process);
            match met {
                Err(_) if process.is_gone() => {
                    self.arrive();
                    return Ok(());
                }
                Err(_) => self.fail(),
                Ok(()) => {}
            }
            met
        });
        // While one cannot be locked at all, others may only be waiting for it.
        let is_late = |fault: &Fault| matches!(fault.cause, Cause::Deadline(_));
        faults.into_iter().min_by_key(is_late).map_or(Ok(()), Err)
    }

    /// Comes back when all are locked, or one failed.
    fn meet(&self, process: &ProcessRef) -> Result<(), Fault> {
        let mut patience = self.limits.one_try;
        loop {
            if !self.lock(process)? {
                return Ok(());
            }
            self.arrive();
            let Some(arrivals) = self.leave_after(patience) else {
                return Ok(());
            };
            self.let_go(process)?;
            // A moment is what our own calls take; if that is too short, until somebody has been caught up with.
            if fastrand::bool() {
                drop(self.wait_while(self.some_time(), |meeting| {
                    meeting.arrivals == arrivals && !meeting.has_failed
                }));
            }
            patience = self.some_time();
        }
    }

    /// Waits until the process is locked; not if another failed meanwhile.
    fn lock(&self, process: &ProcessRef) -> Result<bool, Fault> {
        let pid = process.pid();
        while !self.look().has_failed {
            // Not asked for its state first: that takes as long as the lock, in which it may run ahead.
            match self.driver.lock(pid, self.limits.one_try) {
                Ok(()) => return Ok(true),
                Err(CudaError::IllegalState) if self.is_put_away(pid) => return Ok(true),
                Err(CudaError::NotReady) if self.start.elapsed() < self.limits.deadline => {
                    thread::sleep(SHORTEST);
                }
                Err(CudaError::NotReady) => {
                    let cause = Cause::Deadline(self.limits.deadline);
                    return Err(Fault::of(Step::Lock, process, cause));
                }
                Err(error) => return Err(Fault::of(Step::Lock, process, error)),
            }
        }
        Ok(false)
    }

    fn is_put_away(&self, pid: i32) -> bool {
        let state = self.driver.state(pid);
        matches!(state, Ok(CudaState::Locked | CudaState::Checkpointed))
    }

    fn let_go(&self, process: &ProcessRef) -> Result<(), Fault> {
        match self.driver.unlock(process.pid()) {
            Ok(()) => Ok(()),
            // It was found CHECKPOINTED; or it has ended.
            Err(_) => revive_one(self.driver, process),
        }
    }

    /// One more is locked, or not to be waited for.
    fn arrive(&self) {
        let mut meeting = self.look();
        meeting.missing -= 1;
        meeting.arrivals += 1;
        self.changed.notify_all();
    }

    /// Waits for the others. If they did not come, the process is to be let go: with the arrivals so far.
    fn leave_after(&self, patience: Duration) -> Option<u64> {
        let mut meeting = self.wait_while(patience, |meeting| !meeting.is_over());
        if meeting.is_over() {
            return None;
        }
        meeting.missing += 1;
        Some(meeting.arrivals)
    }

    fn fail(&self) {
        self.look().has_failed = true;
        self.changed.notify_all();
    }

    fn wait_while(
        &self,
        longest: Duration,
        condition: impl Fn(&Meeting) -> bool,
    ) -> MutexGuard<'_, Meeting> {
        let waited = self
            .changed
            .wait_timeout_while(self.look(), longest, |meeting| condition(meeting));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn look(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From a millisecond to as long as one try, or longer if that was not enough so far; each order of magnitude as likely as another.
    fn some_time(&self) -> Duration {
        let longest = self.limits.one_try.max(self.start.elapsed() / 4);
        let orders = (longest.as_secs_f64() / SHORTEST.as_secs_f64()).max(1.0);
        SHORTEST.mul_f64(orders.powf(fastrand::f64()))
    }
}

/// A process that cannot be locked from the state that it is in.
fn stuck(members: &Members) -> Option<Fault> {
    let mut stuck = members
        .iter()
        .filter(|(_, state)| matches!(state, CudaState::Failed | CudaState::Unknown(_)));
    stuck
        .next()
        .map(|(process, state)| Fault::of(Step::Lock, process, Cause::State(*state)))
}
