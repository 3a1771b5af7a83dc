//! Moves all CUDA processes of a container together through the driver's states.
//!
//! ```text
//! Running --lock--> Locked --checkpoint--> Checkpointed --restore--> Locked --unlock--> Running
//! ```
//!
//! The type records our last step; every step ends by reading the actual states from the driver.
//! A step that fails returns no job: it has brought every member back to RUNNING, and its error
//! lists the members for which that failed.

use std::fmt;
use std::marker::PhantomData;

use stasis_linux::ProcessRef;

use crate::cuda::failure::{JobError, ProcessFailure, Step};
use crate::cuda::lock::{LockLimits, lock_all};
use crate::cuda::process_set::{ProcessStates, bring_to_running, can_be_queried, expect_state};
use crate::cuda::threads::for_each;
use crate::cuda::{CudaError, CudaState, Driver, GpuMap};

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
    /// Locks all CUDA processes that `find_members` returns, at the same time and with short tries,
    /// until all are locked together or the deadline has passed (`cuda/lock.rs`). `find_members`
    /// reads the container each time, so new processes are included and exited ones dropped.
    ///
    /// Members that are LOCKED or CHECKPOINTED already (left by a killed operation, or waiting for
    /// an OCI `resume`) stay so.
    ///
    /// # Errors
    /// [`JobError`]; nothing is locked then.
    pub fn lock(
        driver: &'d dyn Driver,
        limits: LockLimits,
        find_members: impl FnMut() -> Result<ProcessStates, ProcessFailure>,
    ) -> Result<CudaJob<'d, Locked>, JobError> {
        Ok(CudaJob::new(
            driver,
            lock_all(driver, limits, find_members)?,
        ))
    }
}

impl<'d> CudaJob<'d, Locked> {
    /// Moves the GPU state of all members into host memory, in parallel.
    ///
    /// # Errors
    /// [`JobError`]; every member has been unlocked again.
    pub fn checkpoint(self) -> Result<CudaJob<'d, Checkpointed>, JobError> {
        let driver = self.driver;
        self.advance(Step::Checkpoint, CudaState::Checkpointed, |process| {
            driver.checkpoint(process)
        })
    }

    /// Unlocks all members.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn unlock(self) -> Result<CudaJob<'d, Running>, JobError> {
        let driver = self.driver;
        self.advance(Step::Unlock, CudaState::Running, |process| {
            driver.unlock(process)
        })
    }
}

impl<'d> CudaJob<'d, Checkpointed> {
    /// The job of processes that CRIU has just restored.
    ///
    /// # Errors
    /// The first process that is not CHECKPOINTED.
    pub fn of_restored(
        driver: &'d dyn Driver,
        processes: Vec<ProcessRef>,
    ) -> Result<Self, ProcessFailure> {
        for process in &processes {
            expect_state(driver, Step::Query, process, CudaState::Checkpointed)?;
        }
        Ok(Self::new(driver, processes))
    }

    /// Restores the GPU state of all members, in parallel.
    ///
    /// # Errors
    /// [`JobError`]; members that could be restored run, those listed as lost do not.
    pub fn restore(self, map: &GpuMap) -> Result<CudaJob<'d, Locked>, JobError> {
        let driver = self.driver;
        self.advance(Step::Restore, CudaState::Locked, |process| {
            driver.restore(process, map)
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

    /// Brings all members back to RUNNING from any state; returns the failures.
    #[must_use]
    pub fn roll_back(self) -> Vec<ProcessFailure> {
        bring_to_running(self.driver, &self.members)
    }

    /// Makes one call for every member in parallel; skips members that are in the state `goal`.
    fn advance<T>(
        self,
        step: Step,
        goal: CudaState,
        call: impl Fn(&ProcessRef) -> Result<(), CudaError> + Sync,
    ) -> Result<CudaJob<'d, T>, JobError> {
        let driver = self.driver;
        let failures = for_each(step, &self.members, |process| {
            if can_be_queried(process)? && driver.state(process) != Ok(goal) {
                call(process).map_err(|error| ProcessFailure::of(step, process, error))?;
            }
            expect_state(driver, step, process, goal)
        });
        match failures.into_iter().next() {
            None => Ok(CudaJob::new(driver, self.members)),
            Some(fault) => Err(JobError {
                fault,
                lost: bring_to_running(driver, &self.members),
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
pub(crate) mod tests;
