//! Room for GPU contents: in host memory while they are there, and on the GPUs when they go back.
//!
//! The driver loses a process that it has no room for at a restore, and NVML does not tell what a process needs that is not on a GPU. So what the
//! processes of a container held is recorded when they leave it. A tree has nowhere to keep that.

use stasis_config::Memory;

use super::Error;
use super::group::{Group, Scope};
use crate::admission::admit_resume;
use crate::gpu::Inventory;
use crate::host_memory;
use crate::manifest::{CudaProcess, gpu_bytes};
use crate::members::Members;
use crate::memory_limit::MemoryCgroup;
use crate::operation::{Intent, WaitsFor};

impl Group<'_> {
    /// Sees to host memory for what is on the GPUs. For a container it also raises limits, if that is allowed, until its
    /// contents are back.
    ///
    /// # Errors
    /// [`Error::NoHostMemory`], [`Error::Operation`]; nothing is changed then.
    pub(super) fn make_room(&self, members: &Members, inventory: &Inventory) -> Result<(), Error> {
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
        let (memory, cgroup) = (&self.settings.memory, found.container.memory());
        host_memory::admit(memory, cgroup, bytes)?;
        operation.record(&Intent {
            processes: held,
            waits_for: WaitsFor::Operator,
            guardian: None,
        })?;
        if memory.raise_limits {
            host_memory::make_room(cgroup, bytes, operation.directory())?;
        }
        Ok(())
    }

    /// Sees that the GPUs have room for what a container held, as far as that is recorded.
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

    /// All is on the GPUs again: limits go back, and nothing is left to put right.
    pub(super) fn forget(&self) {
        if let Some(operation) = &self.operation {
            operation.forget();
        }
    }

    fn describe(&self, members: &Members, inventory: &Inventory) -> Vec<CudaProcess> {
        let described = members.iter().map(|(process, _)| CudaProcess {
            pid: self.scope.pid_inside(process),
            name: process.name().to_owned(),
            gpus: inventory.uses(process.pid()),
        });
        described.collect()
    }
}
