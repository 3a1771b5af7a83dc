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

use crate::cuda::{CudaError, CudaState, Driver, GpuMap};
use crate::fault::{Fault, JobError, Step};
use crate::lock::{LockLimits, lock_all};
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

impl<'d> CudaJob<'d, Running> {
    /// Locks all CUDA processes that `again` finds, all at the same time with short tries, until
    /// all are locked in one go or the deadline has passed (`lock.rs`). `again` looks at the
    /// container anew, so processes that appear are included and those that exit are dropped.
    ///
    /// Members found LOCKED or CHECKPOINTED (left so by an operation that was killed, or waiting
    /// for an OCI `resume`) are taken as they are.
    ///
    /// # Errors
    /// [`JobError`]; nothing is locked then.
    pub fn lock(
        driver: &'d dyn Driver,
        limits: LockLimits,
        again: impl FnMut() -> Result<Members, Fault>,
    ) -> Result<CudaJob<'d, Locked>, JobError> {
        Ok(CudaJob::new(driver, lock_all(driver, limits, again)?))
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

impl<S> fmt::Debug for CudaJob<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaJob")
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
