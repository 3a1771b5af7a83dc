//! Gives a container its GPUs back.

use stasis_gpu::cuda::failure::JobError;
use stasis_gpu::cuda::job::{Checkpointed, CudaJob};
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::process_set::initial_state::SafeState;
use stasis_gpu::cuda::{CudaState, Driver};
use stasis_gpu::gpu_path::detached;

use super::{Error, Suspension};
use crate::error::Refusal;
use crate::error::kind::State;

impl Suspension {
    /// Brings checkpointed processes to `goal`.
    pub(super) fn take_up(&self, members: ProcessStates, goal: SafeState) -> Result<(), Error> {
        let suspended = match self.recorded()? {
            Some(suspended) => suspended,
            // A program without records has checkpointed them: their needs are not known.
            None => self.intent(&members, &self.inventory()?)?,
        };
        let given = detached::give_back(self.operation.directory());
        given.map_err(|error| Error::refused(Refusal::GpuContents(error)))?;
        self.admit(suspended.clone().still_holding(&members), goal)?;
        // Processes that an earlier try has brought back run.
        let waiting = members.into_iter();
        let waiting = waiting.filter(|(_, state)| *state != CudaState::Running);
        let processes: Vec<_> = waiting.map(|(process, _)| process).collect();
        let held = processes
            .iter()
            .map(|process| (process.clone(), suspended.bytes_of(process)));
        self.driver.expect(&held.collect::<Vec<_>>());
        let job = CudaJob::<Checkpointed>::of_suspended(&self.driver, goal, processes);
        if self.order.map.pairs().is_empty() {
            // If this operation is killed, its recovery finishes it. The record has no map.
            self.operation.record(&suspended.clone().taken_up(goal))?;
        }
        let count = job.members().len();
        let taken_up = self.restore(job, goal);
        let taken_up = match taken_up.map_err(|error| Error::of_taking_up(error, count)) {
            // The failed step has brought all of them to their goal.
            Err(Error::Group { fault, lost }) if lost.is_empty() => {
                let note = format!("{fault}; the second try succeeded");
                self.copying.add_notes(vec![note]);
                Ok(())
            }
            taken_up => taken_up,
        };
        match &taken_up {
            Ok(()) if goal == SafeState::Locked => self.forget(),
            Ok(()) => self.clear(),
            Err(error) if error.state() == State::Waiting => {
                self.leave(&suspended.taken_up(goal), error.lost());
            }
            // Processes that have not come back wait as before.
            Err(_) => self.settle(suspended),
        }
        taken_up
    }

    fn restore(&self, job: CudaJob<'_, Checkpointed>, goal: SafeState) -> Result<(), JobError> {
        let job = job.restore(&self.order.map)?;
        if goal == SafeState::Running {
            job.unlock()?;
        }
        Ok(())
    }
}
