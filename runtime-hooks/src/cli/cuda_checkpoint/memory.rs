//! Memory for GPU contents: on the host while they are there, and on the GPUs when they return.
//!
//! The driver loses a process if a restore finds too little GPU memory, and NVML does not report
//! the memory of a checkpointed process. So a checkpoint records how much each process of a
//! container held. There is no place for such a record of a tree.

use stasis_config::Memory;

use super::Error;
use super::job::{Group, Scope};
use crate::container::host_memory;
use crate::container::memory_limit::MemoryCgroup;
use crate::cuda::gpu_use::{CudaProcess, gpu_bytes};
use crate::cuda::nvml::Inventory;
use crate::cuda::process_set::ProcessStates;
use crate::operation::{Intent, PendingOn};
use crate::restore::admission::admit_resume;

impl Group<'_> {
    /// Checks that host memory suffices for the contents of the GPUs. For a container it also
    /// raises memory limits, if the settings allow it, until the contents are restored.
    ///
    /// # Errors
    /// [`Error::NoHostMemory`], [`Error::Operation`]; nothing is changed then.
    pub(super) fn raise_limits(
        &self,
        members: &ProcessStates,
        inventory: &Inventory,
    ) -> Result<(), Error> {
        let held: Vec<CudaProcess> = self.describe(members, inventory);
        let bytes = gpu_bytes(&held).unwrap_or(0);
        let (Scope::Container(found), Some(operation)) = (&self.scope, &self.operation) else {
            let keep = Memory {
                raise_limits: false,
            };
            for (process, _) in members {
                if let Some(cgroup) = MemoryCgroup::of(process.pid())? {
                    host_memory::admit(&keep, &cgroup, bytes)?;
                }
            }
            return Ok(());
        };
        let processes = members.iter().map(|(process, _)| process);
        let cgroup = found.container.memory().with_those_of(processes)?;
        let memory = &self.settings.memory;
        host_memory::admit(memory, &cgroup, bytes)?;
        operation.record(&Intent {
            processes: held,
            pending_on: PendingOn::Operator,
            recovery: None,
        })?;
        if memory.raise_limits {
            host_memory::raise_limits(&cgroup, bytes, operation.directory())?;
        }
        Ok(())
    }

    /// Checks that the GPUs have enough free memory for the recorded contents of a container.
    ///
    /// # Errors
    /// [`Error::Refused`]; nothing is changed then.
    pub(super) fn admit_restore(&self) -> Result<(), Error> {
        let (Scope::Container(found), Some(operation)) = (&self.scope, &self.operation) else {
            return Ok(());
        };
        match operation.recorded()? {
            Some(intent) => {
                let intent = intent.moved(&self.arguments.map());
                admit_resume(&self.settings, &found.container, &intent)
                    .map_err(|refusal| Error::Refused(Box::new(refusal)))
            }
            None => Ok(()),
        }
    }

    /// Restores the memory limits and removes the record, once all state is on the GPUs again.
    pub(super) fn clear(&self) {
        if let Some(operation) = &self.operation {
            operation.clear();
        }
    }

    fn describe(&self, members: &ProcessStates, inventory: &Inventory) -> Vec<CudaProcess> {
        let described = members.iter().map(|(process, _)| CudaProcess {
            pid: self.scope.pid_inside(process),
            name: process.name().to_owned(),
            gpus: inventory.uses(process.pid()),
        });
        described.collect()
    }
}
