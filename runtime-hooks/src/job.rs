//! All CUDA processes of a container, driven together through the driver's states.
//!
//! ```text
//! Running --lock--> Locked --checkpoint--> Checkpointed --restore--> Locked --unlock--> Running
//! ```
//!
//! The type says what we did; the driver says what is: every step ends with the states read back.
//! A step that fails gives no job back: it has brought every member back to RUNNING by then, or
//! says in the error which member could not be brought back.

use std::fmt;
use std::marker::PhantomData;
use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::{CudaError, CudaState, Driver, GpuMap};
use crate::fault::{Cause, Fault, JobError, Step};
use crate::members::{Members, can_answer, expect_state, for_each, revive};
use crate::process::ProcessRef;

/// Marker: members may call CUDA.
#[derive(Debug)]
pub enum Running {}
/// Marker: CUDA calls of all members block, their GPU state is on the GPU.
#[derive(Debug)]
pub enum Locked {}
/// Marker: the GPU state of all members is in host memory.
#[derive(Debug)]
pub enum Checkpointed {}

/// The CUDA processes of a container, all in the state `S`.
pub struct CudaJob<'d, S> {
    driver: &'d dyn Driver,
    members: Vec<ProcessRef>,
    state: PhantomData<S>,
}

/// The time that locking may take.
#[derive(Debug, Clone, Copy)]
pub struct LockLimits {
    /// For the whole job.
    pub deadline: Duration,
    /// For one try on one process. Short, since ranks that wait for each other in a collective
    /// can only be locked together: a long try holds the others up.
    pub one_try: Duration,
}

impl<'d> CudaJob<'d, Running> {
    /// Locks all CUDA processes that `again` finds, all at the same time with short tries, until
    /// all are locked in one go or the deadline has passed. `again` looks at the container anew
    /// for each try, so processes that appear are included and those that exit are dropped.
    ///
    /// Members found LOCKED or CHECKPOINTED (left so by an operation that was killed, or waiting
    /// for an OCI `resume`) are taken as they are.
    ///
    /// # Errors
    /// [`JobError`]; nothing is locked then.
    pub fn lock(
        driver: &'d dyn Driver,
        limits: LockLimits,
        mut again: impl FnMut() -> Result<Members, Fault>,
    ) -> Result<CudaJob<'d, Locked>, JobError> {
        let start = Instant::now();
        loop {
            let members = again().map_err(|fault| JobError {
                fault,
                lost: Vec::new(),
            })?;
            let (members, failed) = try_lock(driver, limits.one_try, members);
            match failed {
                None if members.is_empty() => return Ok(CudaJob::new(driver, members)),
                // A process that began with CUDA during this try runs unlocked: try again.
                None if all_locked(driver, &members, &mut again)? => {
                    return Ok(CudaJob::new(driver, members));
                }
                None if start.elapsed() < limits.deadline => {}
                None => return Err(unsettled(driver, &members, limits.deadline)),
                Some(fault) => {
                    let lost = revive(driver, &members);
                    if !is_worth_a_retry(&fault) || !lost.is_empty() {
                        return Err(JobError { fault, lost });
                    }
                    if start.elapsed() >= limits.deadline {
                        let cause = Cause::Deadline(limits.deadline);
                        return Err(JobError {
                            fault: Fault { cause, ..fault },
                            lost,
                        });
                    }
                    thread::sleep(Duration::from_millis(fastrand::u64(1..=30)));
                }
            }
        }
    }
}

impl<'d> CudaJob<'d, Locked> {
    /// Moves the GPU state of all members into host memory, all at the same time.
    ///
    /// # Errors
    /// [`JobError`]; every member has been unlocked again.
    pub fn checkpoint(self) -> Result<CudaJob<'d, Checkpointed>, JobError> {
        let driver = self.driver;
        self.advance(Step::Checkpoint, CudaState::Checkpointed, |pid| {
            driver.checkpoint(pid)
        })
    }

    /// Lets all members go on.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn unlock(self) -> Result<CudaJob<'d, Running>, JobError> {
        let driver = self.driver;
        self.advance(Step::Unlock, CudaState::Running, |pid| driver.unlock(pid))
    }
}

impl<'d> CudaJob<'d, Checkpointed> {
    /// The job of processes that CRIU has just brought back.
    ///
    /// # Errors
    /// The first process that is not CHECKPOINTED.
    pub fn of_restored(driver: &'d dyn Driver, processes: Vec<ProcessRef>) -> Result<Self, Fault> {
        for process in &processes {
            expect_state(driver, Step::Look, process, CudaState::Checkpointed)?;
        }
        Ok(Self::new(driver, processes))
    }

    /// Puts the GPU state of all members back, all at the same time.
    ///
    /// # Errors
    /// [`JobError`]; members that could be restored run, those listed as lost do not.
    pub fn restore(self, map: &GpuMap) -> Result<CudaJob<'d, Locked>, JobError> {
        let driver = self.driver;
        self.advance(Step::Restore, CudaState::Locked, |pid| {
            driver.restore(pid, map)
        })
    }
}

impl<'d, S> CudaJob<'d, S> {
    fn new(driver: &'d dyn Driver, members: Vec<ProcessRef>) -> Self {
        Self {
            driver,
            members,
            state: PhantomData,
        }
    }

    /// The processes.
    #[must_use]
    pub fn members(&self) -> &[ProcessRef] {
        &self.members
    }

    /// Brings all members back to RUNNING, whatever their state; returns those that could not be.
    #[must_use]
    pub fn roll_back(self) -> Vec<Fault> {
        revive(self.driver, &self.members)
    }

    /// One call for every member at the same time; members that are there already are left alone.
    fn advance<T>(
        self,
        step: Step,
        goal: CudaState,
        call: impl Fn(i32) -> Result<(), CudaError> + Sync,
    ) -> Result<CudaJob<'d, T>, JobError> {
        let driver = self.driver;
        let faults = for_each(&self.members, |process| {
            if can_answer(process)? && driver.state(process.pid()) != Ok(goal) {
                call(process.pid()).map_err(|error| Fault::of(step, process, error))?;
            }
            expect_state(driver, step, process, goal)
        });
        match faults.into_iter().next() {
            None => Ok(CudaJob::new(driver, self.members)),
            Some(fault) => Err(JobError {
                fault,
                lost: revive(driver, &self.members),
            }),
        }
    }
}

/// One try: the members that are or were tried to be locked, and the first that could not be.
fn try_lock(
    driver: &dyn Driver,
    timeout: Duration,
    members: Members,
) -> (Vec<ProcessRef>, Option<Fault>) {
    let mut tried = Vec::new();
    let mut refused = None;
    for (process, state) in members {
        if let Err(fault) = may_lock(&process, state) {
            refused.get_or_insert(fault);
        }
        tried.push(process);
    }
    if refused.is_some() {
        return (tried, refused);
    }
    let faults = for_each(&tried, |process| match driver.state(process.pid()) {
        Ok(CudaState::Locked | CudaState::Checkpointed) => Ok(()),
        _ => driver
            .lock(process.pid(), timeout)
            .map_err(|error| Fault::of(Step::Lock, process, error)),
    });
    // One that ended during the try is not missed.
    let mut faults = faults;
    faults.retain(|fault| {
        !tried
            .iter()
            .any(|process| process.pid() == fault.pid && process.is_gone())
    });
    // While one cannot be locked at all, others may only be waiting for it.
    faults.sort_by_key(is_worth_a_retry);
    let failed = faults.into_iter().next();
    tried.retain(|process| !process.is_gone());
    (tried, failed)
}

fn is_worth_a_retry(fault: &Fault) -> bool {
    matches!(fault.cause, Cause::Driver(CudaError::NotReady))
}

fn may_lock(process: &ProcessRef, state: CudaState) -> Result<(), Fault> {
    match state {
        CudaState::Running | CudaState::Locked | CudaState::Checkpointed => Ok(()),
        CudaState::Failed | CudaState::Unknown(_) => {
            Err(Fault::of(Step::Lock, process, Cause::State(state)))
        }
    }
}

/// New CUDA processes kept appearing until the deadline.
fn unsettled(driver: &dyn Driver, members: &[ProcessRef], deadline: Duration) -> JobError {
    let (pid, name) = members
        .last()
        .map_or((0, ""), |process| (process.pid(), process.name()));
    let cause = Cause::Deadline(deadline);
    let fault = Fault {
        step: Step::Lock,
        pid,
        name: name.to_owned(),
        cause,
    };
    JobError {
        fault,
        lost: revive(driver, members),
    }
}

fn all_locked(
    driver: &dyn Driver,
    locked: &[ProcessRef],
    again: &mut impl FnMut() -> Result<Members, Fault>,
) -> Result<bool, JobError> {
    match again() {
        Ok(members) => Ok(members
            .iter()
            .all(|(_, state)| *state != CudaState::Running)),
        Err(fault) => Err(JobError {
            fault,
            lost: revive(driver, locked),
        }),
    }
}

impl<S> fmt::Debug for CudaJob<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaJob")
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
