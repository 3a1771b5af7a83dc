//! Memory for GPU contents: on the host while they are there, and on the GPUs when they return.
//!
//! The driver loses a process if a restore finds too little GPU memory, and NVML does not report
//! the memory of a checkpointed process. So a checkpoint records how much each process held.

use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::cuda::gpu_use::{gpu_bytes, measure};
use stasis_gpu::cuda::nvml::Inventory;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::process_set::initial_state::SafeState;
use stasis_gpu::gpu_path::NewFiles;
use stasis_linux::ProcessRef;

use super::{Error, Suspension};
use crate::checkpoint::captured::look;
use crate::container::host_memory::{self, HostRoom};
use crate::container::memory_limit::MemoryCgroup;
use crate::operation::{Intent, Left};
use crate::preflight::ContainerFacts;
use crate::preflight::sharing::Sharing;
use crate::restore::admission::admit_with_room;

/// A process, and the bytes that it holds on GPUs.
pub(super) type Held = (ProcessRef, u64);

/// Returns the entries of some processes.
pub(super) fn only(held: Vec<Held>, processes: &[ProcessRef]) -> Vec<Held> {
    let is_one = |(process, _): &Held| processes.iter().any(|one| one.pid() == process.pid());
    held.into_iter().filter(is_one).collect()
}

impl Suspension {
    /// Checks that there is room for GPU contents in host memory. Contents get files; contents
    /// without a file have to fit into the container. Also records the intent.
    ///
    /// # Errors
    /// [`Error::NoHostMemory`], [`Error::Operation`]; nothing is changed then.
    pub(super) fn make_room(
        &self,
        members: &ProcessStates,
        intent: &Intent,
        inventory: &Inventory,
    ) -> Result<(), Error> {
        let bytes = gpu_bytes(&intent.processes());
        let room = HostRoom(self.operation.reservation(), self.context.wait_limit());
        host_memory::admit_host(room, bytes)?;
        self.operation.record(intent)?;
        let held: Vec<_> = members
            .iter()
            .map(|(process, _)| (process.clone(), intent.bytes_of(process)))
            .collect();
        self.copying.make(&held, &NewFiles::Nameless, |process| {
            let gpus = &intent.member(process)?.process.gpus;
            inventory.numa_node(gpus.iter().map(|gpu| gpu.uuid))
        });
        let outside = held
            .iter()
            .filter(|(process, _)| !self.copying.has_file(process));
        let outside: u64 = outside.map(|(_, bytes)| *bytes).sum();
        let cgroup = self.limits_of(members.iter().map(|(process, _)| process))?;
        host_memory::admit_limits(&cgroup, outside)?;
        Ok(())
    }

    /// Measures the GPU memory of locked processes, which may have changed before the lock.
    pub(super) fn measured(&self, members: &[ProcessRef]) -> Result<Vec<Held>, Error> {
        let processes: Vec<_> = members.iter().collect();
        let gpus = measure(&processes, &self.inventory()?)?;
        let held = members.iter().zip(gpus).map(|(process, gpus)| {
            let bytes = gpus.iter().map(|gpu| gpu.memory_bytes).sum();
            (process.clone(), bytes)
        });
        Ok(held.collect())
    }

    /// Refuses GPU contents of these processes if a memory limit of the container is too small.
    pub(super) fn admit_limits(&self, held: &[Held]) -> Result<(), Error> {
        let bytes = held.iter().map(|(_, bytes)| *bytes).sum();
        if bytes > 0 {
            let cgroup = self.limits_of(held.iter().map(|(process, _)| process))?;
            host_memory::admit_limits(&cgroup, bytes)?;
        }
        Ok(())
    }

    /// The limits of a container.
    fn limits_of<'p>(
        &self,
        processes: impl Iterator<Item = &'p ProcessRef>,
    ) -> Result<MemoryCgroup, Error> {
        Ok(self.container.memory().with_those_of(processes)?)
    }

    /// Checks that the GPUs have enough free memory for the recorded contents of a container.
    ///
    /// # Errors
    /// [`Error::Refused`]; nothing is changed then.
    pub(super) fn admit(&self, suspended: Intent, goal: SafeState) -> Result<(), Error> {
        let intent = suspended.taken_up(goal);
        let intent = intent.moved(&self.order.map);
        let gpus = self.operation.gpu_memory(&self.context);
        let settings = &self.context.settings;
        admit_with_room(settings, &self.container, &intent, &gpus).map_err(Error::refused)
    }

    /// Returns the state in which this operation, or an interrupted one, found the processes.
    pub(super) fn intent(
        &self,
        members: &ProcessStates,
        inventory: &Inventory,
    ) -> Result<Intent, Error> {
        let facts = ContainerFacts {
            snapshot: &self.container.snapshot()?,
            members,
            inventory,
            sharing: Sharing::AtTheLock,
            asked: None,
        };
        let captured = look(&self.context, &self.container, &facts);
        Ok(captured.map_err(Error::refused)?.intent)
    }

    /// Returns the record, if there is one.
    pub(super) fn recorded(&self) -> Result<Option<Intent>, Error> {
        Ok(self.operation.recorded()?)
    }

    /// Keeps only the record of processes that wait for the operator.
    pub(super) fn settle(&self, intent: Intent) {
        // If this fails, the next operation finishes this one by the record that remains.
        let _ = self.operation.settle(intent);
    }

    /// Notifies the program that all state is on the GPUs again, and removes the record.
    pub(super) fn clear(&self) {
        self.run_after_restore();
        self.forget();
    }

    /// Removes the record of processes that are locked, and could not be notified.
    pub(super) fn forget(&self) {
        self.operation.clear();
    }

    /// After a failure: as [`Suspension::clear`] if all processes are back. Leaves processes that
    /// merely do not answer now to the keeper.
    pub(super) fn leave(&self, intent: &Intent, lost: &[ProcessFailure]) {
        match Left::of(lost) {
            Left::Nothing => self.clear(),
            Left::ToUndo => {
                // Without a keeper the next operation finds them.
                let _ = self.operation.hand_over(intent);
            }
            Left::Lost => self.operation.leave(Left::Lost),
        }
    }
}
