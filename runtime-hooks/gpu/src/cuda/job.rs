//! Moves all CUDA processes of a container together through the driver's states.
//!
//! ```text
//! Running --lock--> Locked --checkpoint--> Checkpointed --restore--> Locked --unlock--> Running
//! ```
//!
//! The type records our last step; every step ends by reading the actual states from the driver. A
//! step back stops, for each member, at the state in which it was found. A step that fails returns
//! no job: it has brought every member back to how it was found, and its error lists the members
//! for which that failed.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use stasis_linux::ProcessRef;

use crate::cuda::failure::{Cause, JobError, ProcessFailure, Step};
use crate::cuda::lock::lock_all;
use crate::cuda::process_set::initial_state::{InitialState, ProcessId, SafeState};
use crate::cuda::process_set::{ProcessStates, bring_back, can_be_queried, expect_state, room};
use crate::cuda::threads::for_each;
use crate::cuda::{CudaError, CudaState, Driver, GpuBytes, GpuMap};

/// Marker: members may call CUDA, unless they were found LOCKED or CHECKPOINTED.
#[derive(Debug)]
pub enum Running {}
/// Marker: CUDA calls of all members block; their GPU state is on the GPU, unless they were found
/// CHECKPOINTED.
#[derive(Debug)]
pub enum Locked {}
/// Marker: the GPU state of all members is in host memory.
#[derive(Debug)]
pub enum Checkpointed {}

/// The CUDA processes of a container, all in the state `S`.
pub struct CudaJob<'d, S> {
    driver: &'d dyn Driver,
    initial_state: InitialState,
    members: Vec<ProcessRef>,
    state: PhantomData<S>,
}

impl<'d> CudaJob<'d, Running> {
    /// Locks all CUDA processes that `find_members` returns, at the same time and by steps, until
    /// all are locked together or the deadline has passed (`cuda/lock.rs`). `find_members` reads
    /// the container each time, so new processes are included and exited ones dropped.
    ///
    /// Members that are LOCKED or CHECKPOINTED already stay so. Later steps bring members back to
    /// the state in which they were `initial_state`.
    ///
    /// # Errors
    /// [`JobError`]; nothing is locked then.
    pub fn lock(
        driver: &'d dyn Driver,
        deadline: Duration,
        initial_state: InitialState,
        find_members: impl FnMut() -> Result<ProcessStates, ProcessFailure>,
    ) -> Result<CudaJob<'d, Locked>, JobError> {
        let members = lock_all(driver, deadline, &initial_state, find_members)?;
        Ok(CudaJob::new(driver, initial_state, members))
    }
}

impl<'d> CudaJob<'d, Locked> {
    /// Moves the GPU state of all members into host memory, in parallel.
    ///
    /// # Errors
    /// [`JobError`]; every member has been brought back.
    pub fn checkpoint(self) -> Result<CudaJob<'d, Checkpointed>, JobError> {
        self.checkpoint_each(|_| {})
    }

    /// As [`Self::checkpoint`]; calls `is_done` for each member whose state is in host memory,
    /// while the state of others is still moved.
    pub fn checkpoint_each(
        self,
        is_done: impl Fn(&ProcessRef) + Sync,
    ) -> Result<CudaJob<'d, Checkpointed>, JobError> {
        let driver = self.driver;
        self.advance(Step::Checkpoint, SafeState::Checkpointed, |process| {
            driver.checkpoint(process)?;
            is_done(process);
            Ok(())
        })
    }

    /// Has the members share their memory again, whatever comes next. One that stays CHECKPOINTED
    /// has given its part up, and the others are not unlocked without it.
    fn share_again(self) -> Result<Self, JobError> {
        let members = self.members.iter();
        let sharing: Vec<&ProcessRef> = members
            .filter(|process| self.driver.shares_memory(process))
            .collect();
        let stays =
            |process: &&ProcessRef| self.initial_state.state_of(process) == SafeState::Checkpointed;
        let shared = match sharing.first() {
            Some(process) if !sharing.iter().any(stays) => {
                let shared = self.driver.share_again(process);
                shared.map_err(|error| ProcessFailure::of(Step::Restore, process, error))
            }
            _ => Ok(()),
        };
        match shared {
            Ok(()) => Ok(self),
            Err(fault) => Err(self.failed(fault)),
        }
    }

    /// Unlocks all members, once they share their memory again.
    pub fn unlock(self) -> Result<CudaJob<'d, Running>, JobError> {
        let driver = self.driver;
        self.share_again()?
            .advance(Step::Unlock, SafeState::Running, |process| {
                driver.unlock(process)
            })
    }
}

impl<'d> CudaJob<'d, Checkpointed> {
    /// Makes the job of processes that CRIU has just restored: all of them are to run.
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
        Ok(Self::of_suspended(driver, SafeState::Running, processes))
    }

    /// Makes the job of suspended processes, all of which are brought to `goal`. An earlier restore
    /// may have left some of them LOCKED.
    pub fn of_suspended(
        driver: &'d dyn Driver,
        goal: SafeState,
        processes: Vec<ProcessRef>,
    ) -> Self {
        let ids = processes.iter().map(ProcessId::of);
        let goals = ids.map(|id| (id, (goal, GpuBytes::new())));
        Self::new(driver, goals.collect(), processes)
    }

    /// Restores the GPU state of all members, in parallel.
    ///
    /// # Errors
    /// [`JobError`]; members that could be restored are at their goal, the ones listed as lost are
    /// not. All stay as they are if the GPUs have no room for them together. With a map, members
    /// that could not be restored stay CHECKPOINTED: their own GPUs may belong to others by now.
    pub fn restore(self, map: &GpuMap) -> Result<CudaJob<'d, Locked>, JobError> {
        let driver = self.driver;
        room::reserve(driver, &self.members, &self.initial_state)?;
        self.initial_state.expect(driver, &self.members);
        let restore = |process: &ProcessRef| driver.restore(process, map);
        let back = match map.pairs() {
            [] => Self::failed,
            _ => Self::failed_elsewhere,
        };
        let job = self.advance_or(back, Step::Restore, SafeState::Locked, restore)?;
        job.share_again()
    }

    /// Brings back the members that have a GPU; the others wait as before.
    fn failed_elsewhere(self, fault: ProcessFailure) -> JobError {
        let driver = self.driver;
        let waits = |process: &ProcessRef| {
            matches!(can_be_queried(process), Ok(true))
                && driver.state(process) == Ok(CudaState::Checkpointed)
        };
        let (waiting, back): (Vec<_>, Vec<_>) = self.members.into_iter().partition(waits);
        let mut lost = bring_back(driver, &back, &self.initial_state);
        let waiting = waiting.iter();
        lost.extend(
            waiting.map(|process| ProcessFailure::of(Step::Restore, process, Cause::Suspended)),
        );
        JobError { fault, lost }
    }
}

impl<'d, S> CudaJob<'d, S> {
    fn new(driver: &'d dyn Driver, initial_state: InitialState, members: Vec<ProcessRef>) -> Self {
        Self {
            driver,
            initial_state,
            members,
            state: PhantomData,
        }
    }

    /// The processes.
    pub fn members(&self) -> &[ProcessRef] {
        &self.members
    }

    /// Brings all members back to how they were found, from any state; returns the failures.
    #[must_use]
    pub fn roll_back(self) -> Vec<ProcessFailure> {
        bring_back(self.driver, &self.members, &self.initial_state)
    }

    fn failed(self, fault: ProcessFailure) -> JobError {
        JobError {
            fault,
            lost: self.roll_back(),
        }
    }

    fn advance<T>(
        self,
        step: Step,
        goal: SafeState,
        call: impl Fn(&ProcessRef) -> Result<(), CudaError> + Sync,
    ) -> Result<CudaJob<'d, T>, JobError> {
        self.advance_or(Self::failed, step, goal, call)
    }

    /// Makes one call for every member in parallel; skips members that are in the state `goal`, or
    /// were found in one that is less free. `back` is the way back if a call fails.
    fn advance_or<T>(
        self,
        back: fn(Self, ProcessFailure) -> JobError,
        step: Step,
        goal: SafeState,
        call: impl Fn(&ProcessRef) -> Result<(), CudaError> + Sync,
    ) -> Result<CudaJob<'d, T>, JobError> {
        let driver = self.driver;
        let failures = for_each(step, &self.members, |process| {
            let goal = goal.max(self.initial_state.state_of(process)).into();
            if can_be_queried(process)? && driver.state(process) != Ok(goal) {
                call(process).map_err(|error| ProcessFailure::of(step, process, error))?;
            }
            expect_state(driver, step, process, goal)
        });
        match failures.into_iter().next() {
            None => Ok(CudaJob::new(driver, self.initial_state, self.members)),
            Some(fault) => Err(back(self, fault)),
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
