//! Locking all CUDA processes of a container in one go.
//!
//! The driver's lock lets no more work be submitted and waits for what was. Ranks wait for each other in
//! collectives, so they can only be locked at points where all have submitted the same ones. Where each waits for its results at
//! every step, trying all at the same time hits such a point soon. A rank that does not is ahead of the others by
//! what its queue holds, at every try. So whoever cannot be locked is ahead, and is held while the others go on: its lock is
//! tried for longer, which keeps it from submitting more, and those that were locked are let go until they have caught up.

use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::{CudaError, CudaState, Driver};
use crate::fault::{Cause, Fault, JobError, Step};
use crate::members::{Members, for_each, revive, revive_one};
use crate::process::ProcessRef;

/// The time that locking may take.
#[derive(Debug, Clone, Copy)]
pub struct LockLimits {
    /// For the whole job.
    pub deadline: Duration,
    /// For one try on one process. Short, since ranks that wait for each other in a collective
    /// can only be locked together: a long try holds the others up.
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
        let attempt = Attempt {
            driver,
            limits,
            start,
            tried: &tried,
        };
        if let Some(fault) = stuck {
            return Err(attempt.give_up(fault));
        }
        attempt.lock_all().map_err(|fault| attempt.give_up(fault))?;
        // A process that began with CUDA during this try runs unlocked: try again, with it.
        members = again().map_err(|fault| attempt.give_up(fault))?;
        if members
            .iter()
            .all(|(_, state)| *state != CudaState::Running)
        {
            return Ok(tried.into_iter().filter(|one| !one.is_gone()).collect());
        }
        if start.elapsed() >= limits.deadline {
            return Err(attempt.give_up(unsettled(&members, limits.deadline)));
        }
    }
}

/// Some processes, and the time that is left to lock them.
struct Attempt<'a> {
    driver: &'a dyn Driver,
    limits: LockLimits,
    start: Instant,
    tried: &'a [ProcessRef],
}

impl Attempt<'_> {
    fn lock_all(&self) -> Result<(), Fault> {
        let mut patience = self.limits.one_try;
        let mut one_try = self.limits.one_try;
        loop {
            let ahead = self.lock_each(one_try)?;
            let Some(first) = ahead.first() else {
                return Ok(());
            };
            let left = self.limits.deadline.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                let cause = Cause::Deadline(self.limits.deadline);
                return Err(Fault::of(Step::Lock, first, cause));
            }
            one_try = self.some_time();
            let held = self.hold_while_others_go_on(&ahead, patience.min(left))?;
            if held == 0 {
                // Steps of this job take longer than that; or two that are ahead hold each other up.
                patience *= 2;
                thread::sleep(Duration::from_millis(fastrand::u64(1..=30)));
            }
        }
    }

    /// For the next try. Mostly little: who has caught up either is idle for a moment or already waits for those that are held, and
    /// then only another try helps. Now and then more, for work that takes its time.
    fn some_time(&self) -> Duration {
        let parts = if fastrand::u8(0..4) == 0 { 1 } else { 10 };
        self.limits.one_try / parts
    }

    /// Tries all that are not locked at the same time; those that still had work to wait for.
    fn lock_each(&self, timeout: Duration) -> Result<Vec<&ProcessRef>, Fault> {
        let faults = for_each(self.tried, |process| {
            match self.driver.state(process.pid()) {
                Ok(CudaState::Locked | CudaState::Checkpointed) => Ok(()),
                _ => self.lock(process, timeout),
            }
        });
        self.waiting(faults)
    }

    /// How many of those that are ahead could be locked while all others went on.
    fn hold_while_others_go_on(
        &self,
        ahead: &[&ProcessRef],
        patience: Duration,
    ) -> Result<usize, Fault> {
        let is_ahead = |process: &ProcessRef| ahead.iter().any(|one| one.pid() == process.pid());
        let faults = for_each(self.tried, |process| {
            if is_ahead(process) {
                self.lock(process, patience)
            } else {
                revive_one(self.driver, process)
            }
        });
        Ok(ahead.len().saturating_sub(self.waiting(faults)?.len()))
    }

    fn lock(&self, process: &ProcessRef, timeout: Duration) -> Result<(), Fault> {
        let locked = self.driver.lock(process.pid(), timeout);
        locked.map_err(|error| Fault::of(Step::Lock, process, error))
    }

    /// Sorts failures: one that is worth no other try is an error, and one that ended is not missed.
    fn waiting(&self, faults: Vec<Fault>) -> Result<Vec<&ProcessRef>, Fault> {
        let mut waiting = Vec::new();
        for fault in faults {
            let process = self.tried.iter().find(|one| one.pid() == fault.pid);
            match process {
                Some(process) if process.is_gone() => {}
                Some(process) if is_worth_a_retry(&fault) => waiting.push(process),
                _ => return Err(fault),
            }
        }
        Ok(waiting)
    }

    fn give_up(&self, fault: Fault) -> JobError {
        let lost = revive(self.driver, self.tried);
        JobError { fault, lost }
    }
}

fn is_worth_a_retry(fault: &Fault) -> bool {
    matches!(fault.cause, Cause::Driver(CudaError::NotReady))
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

/// New CUDA processes kept appearing until the deadline.
fn unsettled(members: &Members, deadline: Duration) -> Fault {
    let newest = members
        .iter()
        .rfind(|(_, state)| *state == CudaState::Running);
    let (pid, name) = newest.map_or((0, ""), |(process, _)| (process.pid(), process.name()));
    Fault {
        step: Step::Lock,
        pid,
        name: name.to_owned(),
        cause: Cause::Deadline(deadline),
    }
}
