//! The GPUs of this machine, and which processes hold how much of their memory, from NVML.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};

use crate::cuda::{GpuUuid, InvalidGpuUuid};

/// Where drivers put NVML when the dynamic linker does not know it.
const SEARCH: [&str; 4] = [
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
];

/// One GPU as the manifest records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Its identity.
    pub uuid: GpuUuid,
    /// The product name, e.g. "NVIDIA H200".
    pub name: String,
    /// All of its memory, in bytes.
    pub memory_bytes: u64,
}

/// What one process holds on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuUse {
    /// The GPU.
    pub uuid: GpuUuid,
    /// GPU memory of the process in bytes, its context included; `None` if NVML cannot tell.
    pub memory_bytes: Option<u64>,
}

/// A look at all GPUs of the machine.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The driver's version, e.g. "580.159.04".
    pub driver_version: String,
    /// All GPUs.
    pub gpus: Vec<Gpu>,
    /// Free memory of each GPU in bytes.
    pub free_bytes: BTreeMap<GpuUuid, u64>,
    /// The GPUs that each process uses.
    pub processes: BTreeMap<i32, Vec<GpuUse>>,
}

/// Why the GPUs could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// No NVML on this machine, or it does not start.
    #[error("cannot use NVML ({}); name the library in the settings (driver.nvml)", .path.display())]
    Open {
        /// The library that was tried last.
        path: PathBuf,
        /// What NVML said.
        #[source]
        source: NvmlError,
    },
    /// A question was not answered.
    #[error("NVML does not tell {what}")]
    Ask {
        /// What was asked for.
        what: &'static str,
        /// What NVML said.
        #[source]
        source: NvmlError,
    },
    /// NVML gave something that is not a GPU UUID (a MIG slice has another form).
    #[error("NVML names a GPU in an unknown form")]
    Uuid(#[from] InvalidGpuUuid),
}

impl Inventory {
    /// Looks at the machine's GPUs through the given NVML, or the first that is found.
    ///
    /// # Errors
    /// [`InventoryError`].
    pub fn read(library: Option<&Path>) -> Result<Self, InventoryError> {
        let nvml = open(library)?;
        let mut inventory = Self {
            driver_version: nvml
                .sys_driver_version()
                .map_err(ask("the driver version"))?,
            ..Self::default()
        };
        let count = nvml.device_count().map_err(ask("the number of GPUs"))?;
        for index in 0..count {
            inventory.add(&nvml, index)?;
        }
        Ok(inventory)
    }

    fn add(&mut self, nvml: &Nvml, index: u32) -> Result<(), InventoryError> {
        let device = nvml
            .device_by_index(index)
            .map_err(ask("a GPU by its index"))?;
        let uuid: GpuUuid = device.uuid().map_err(ask("a GPU's UUID"))?.parse()?;
        let name = device.name().map_err(ask("a GPU's name"))?;
        let memory = device.memory_info().map_err(ask("a GPU's memory"))?;
        self.gpus.push(Gpu {
            uuid,
            name,
            memory_bytes: memory.total,
        });
        self.free_bytes.insert(uuid, memory.free);
        let running = device
            .running_compute_processes()
            .map_err(ask("a GPU's processes"))?;
        for process in running {
            let memory_bytes = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            let Ok(pid) = i32::try_from(process.pid) else {
                continue;
            };
            self.processes
                .entry(pid)
                .or_default()
                .push(GpuUse { uuid, memory_bytes });
        }
        Ok(())
    }

    /// What a process uses; empty if NVML does not list it.
    #[must_use]
    pub fn uses(&self, pid: i32) -> Vec<GpuUse> {
        self.processes.get(&pid).cloned().unwrap_or_default()
    }
}

fn open(library: Option<&Path>) -> Result<Nvml, InventoryError> {
    let start = |path: &Path| {
        Nvml::builder()
            .lib_path(path.as_os_str())
            .init()
            .map_err(|source| InventoryError::Open {
                path: path.to_owned(),
                source,
            })
    };
    if let Some(path) = library {
        return start(path);
    }
    let [first, others @ ..] = SEARCH;
    let there = others.iter().filter(|path| Path::new(path).exists());
    there.fold(start(Path::new(first)), |found, path| {
        found.or_else(|_| start(Path::new(path)))
    })
}

fn ask(what: &'static str) -> impl Fn(NvmlError) -> InventoryError {
    move |source| InventoryError::Ask { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let error = Inventory::read(Some(Path::new("/nonexistent/libnvidia-ml.so.1"))).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/libnvidia-ml.so.1"),
            "{error}"
        );
    }
}
