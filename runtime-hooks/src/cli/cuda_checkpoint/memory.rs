//! Memory for GPU contents: on the host while they are there, and on the GPUs when they return.
//!
//! The driver loses a process if a restore finds too little GPU memory, and NVML does not report
//! the memory of a checkpointed process. So a checkpoint records how much each process of a
//! container held. There is no place for such a record of a tree.

use std::iter;

use stasis_config::Memory;
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::FreezerState;

use super::Error;
use super::job::Group;
use super::scope::Scope;
use crate::container::host_memory::{self, HostRoom};
use crate::container::memory_limit::MemoryCgroup;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::gpu_use::{CudaProcess, GpuUse, gpu_bytes, measure};
use crate::cuda::nvml::Inventory;
use crate::cuda::process_set::ProcessStates;
use crate::cuda::process_set::as_found::SafeState;
use crate::ledger::Patience;
use crate::ledger::gpu_memory::GpuMemory;
use crate::operation::{Intent, Member, Operation, OperationError};
use crate::restore::admission::admit_with_room;

impl Group<'_> {
    /// Checks that host memory suffices for the contents of the GPUs. For a container it also
    /// records the intent, and raises memory limits, if the settings allow it, until the contents
    /// are restored.
    ///
    /// # Errors
    /// [`Error::NoHostMemory`], [`Error::Operation`]; nothing is changed then.
    pub(super) fn raise_limits(
        &self,
        members: &ProcessStates,
        intent: &Intent,
    ) -> Result<(), Error> {
        let bytes = gpu_bytes(&intent.processes());
        let room = HostRoom {
            reservation: &self.reservation,
            patience: &self.patience(),
        };
        let (Scope::Container(found), Some(operation)) = (&self.scope, &self.operation) else {
            let keep = Memory {
                raise_limits: false,
            };
            for (process, _) in members {
                if let Some(cgroup) = MemoryCgroup::of(process.pid())? {
                    host_memory::admit(&keep, room, &cgroup, bytes)?;
                }
            }
            return Ok(());
        };
        let processes = members.iter().map(|(process, _)| process);
        let cgroup = found.container.memory().with_those_of(processes)?;
        let memory = &self.settings.memory;
        host_memory::admit(memory, room, &cgroup, bytes)?;
        operation.record(intent)?;
        if memory.raise_limits {
            host_memory::raise_limits(&cgroup, bytes, operation.directory())?;
        }
        Ok(())
    }

    /// Checks that the GPUs have enough free memory for the recorded contents of a container.
    ///
    /// # Errors
    /// [`Error::Refused`]; nothing is changed then.
    pub(super) fn admit(&self, suspended: &Intent, goal: SafeState) -> Result<(), Error> {
        let Scope::Container(found) = &self.scope else {
            return Ok(());
        };
        let intent = suspended.clone().taken_up(goal);
        let intent = intent.moved(&self.arguments.map());
        admit_with_room(
            &self.settings,
            &found.container,
            &intent,
            &self.gpu_memory(),
        )
        .map_err(|refusal| Error::Refused(Box::new(refusal)))
    }

    /// Where memory of GPUs is reserved.
    pub(super) fn gpu_memory(&self) -> GpuMemory {
        GpuMemory::new(&self.reservation, self.patience(), &self.settings)
    }

    fn patience(&self) -> Patience {
        Patience::new(self.settings.deadlines.room(), self.cancel.clone())
    }

    /// How the processes are found, or were found by an operation that was interrupted.
    ///
    /// # Errors
    /// [`Error::Operation`], or an error of reading `/proc`.
    pub(super) fn intent(
        &self,
        members: &ProcessStates,
        inventory: &Inventory,
    ) -> Result<Intent, Error> {
        let earlier = self.recorded()?;
        let earlier = earlier.map(|intent| intent.still_holding(members));
        let processes: Vec<_> = members.iter().map(|(process, _)| process).collect();
        let gpus = measure(&processes, inventory)?;
        Ok(self.intent_of(members, gpus, earlier.as_ref()))
    }

    /// What is known of processes that a program without records has checkpointed: not what they
    /// need.
    pub(super) fn suspended_by_others(&self, members: &ProcessStates) -> Intent {
        self.intent_of(members, iter::repeat(Vec::new()), None)
    }

    /// `gpus` are those of each process.
    fn intent_of(
        &self,
        members: &ProcessStates,
        gpus: impl IntoIterator<Item = Vec<GpuUse>>,
        earlier: Option<&Intent>,
    ) -> Intent {
        let found = members.iter().zip(gpus).map(|((process, state), gpus)| {
            let described = self.describe(process, gpus);
            let earlier = earlier.and_then(|intent| intent.member(process));
            Member::new(process, SafeState::from(*state), described, earlier)
        });
        Intent {
            members: found.collect(),
            freezer: FreezerState::Thawed,
        }
    }

    /// The record of a container.
    ///
    /// # Errors
    /// [`Error::Operation`].
    pub(super) fn recorded(&self) -> Result<Option<Intent>, Error> {
        let recorded = self.operation.as_ref().map(Operation::recorded);
        Ok(recorded.transpose()?.flatten())
    }

    /// Writes the record of a container.
    ///
    /// # Errors
    /// [`OperationError`].
    pub(super) fn record(&self, intent: &Intent) -> Result<(), OperationError> {
        let operation = self.operation.as_ref();
        operation.map_or(Ok(()), |operation| operation.record(intent))
    }

    /// Leaves what waits for the operator recorded, and nothing else.
    pub(super) fn settle(&self, intent: Intent) {
        if let Some(operation) = &self.operation {
            // The record that stays has the next operation finish what this one has begun.
            let _ = operation.settle(intent);
        }
    }

    /// Restores the memory limits and removes the record, once all state is on the GPUs again.
    pub(super) fn clear(&self) {
        if let Some(operation) = &self.operation {
            operation.clear();
        }
    }

    /// As [`Group::clear`], but leaves processes that merely do not answer now to the keeper.
    pub(super) fn leave(&self, intent: &Intent, lost: &[ProcessFailure]) {
        match &self.operation {
            Some(operation) if lost.iter().any(ProcessFailure::may_pass) => {
                // Without a keeper the next operation finds them.
                let _ = operation.hand_over(intent);
            }
            _ => self.clear(),
        }
    }

    fn describe(&self, process: &ProcessRef, gpus: Vec<GpuUse>) -> CudaProcess {
        CudaProcess {
            pid: self.scope.pid_inside(process),
            name: process.name().to_owned(),
            gpus,
        }
    }
}
