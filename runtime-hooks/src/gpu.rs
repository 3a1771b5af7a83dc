//! The GPUs of this machine, and which processes hold how much of their memory, from NVML.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
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

/// Whether the driver keeps a GPU initialised while nobody uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// It does; the checkpoint calls want it.
    On,
    /// It does not.
    Off,
    /// This GPU, or this NVML, does not tell.
    NotSupported,
}

/// Whether a GPU is cut into MIG slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mig {
    /// It is.
    Enabled,
    /// It could be, and is not.
    Disabled,
    /// This GPU, or this NVML, knows no MIG.
    NotSupported,
}

/// What only this machine can say of one of its GPUs, and no manifest records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// The number in the path of its device node, `/dev/nvidiaN`.
    pub minor: u32,
    /// Its persistence mode.
    pub persistence: Persistence,
    /// Its MIG mode.
    pub mig: Mig,
    /// The processes that use it through an MPS server; none where there is no MPS.
    pub mps_clients: Vec<i32>,
}

/// A look at all GPUs of the machine.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The driver's version, e.g. "580.159.04".
    pub driver_version: String,
    /// All GPUs.
    pub gpus: Vec<Gpu>,
    /// What else is known of each GPU.
    pub facts: BTreeMap<GpuUuid, GpuFacts>,
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
        self.facts.insert(uuid, GpuFacts::read(&device)?);
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

impl GpuFacts {
    fn read(device: &Device<'_>) -> Result<Self, InventoryError> {
        let persistence = told(device.is_in_persistent_mode());
        let mig = told(device.mig_mode().map(|mode| mode.current));
        let clients = told(device.mps_running_compute_processes());
        Ok(Self {
            minor: device
                .minor_number()
                .map_err(ask("the number of a GPU's device node"))?,
            persistence: match persistence.map_err(ask("a GPU's persistence mode"))? {
                Some(true) => Persistence::On,
                Some(false) => Persistence::Off,
                None => Persistence::NotSupported,
            },
            mig: match mig.map_err(ask("a GPU's MIG mode"))? {
                Some(0) => Mig::Disabled,
                Some(_) => Mig::Enabled,
                None => Mig::NotSupported,
            },
            mps_clients: clients
                .map_err(ask("a GPU's MPS clients"))?
                .unwrap_or_default()
                .iter()
                .filter_map(|client| i32::try_from(client.pid).ok())
                .collect(),
        })
    }
}

/// Old GPUs, and NVMLs that are older than a question, have no answer to it: that is one, too.
fn told<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_),
        ) => Ok(None),
        Err(error) => Err(error),
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
    fn what_a_gpu_does_not_know_is_no_error() {
        let missing = NvmlError::FailedToLoadSymbol("nvmlDeviceGetMigMode".to_owned());
        for unknown in [
            NvmlError::NotSupported,
            NvmlError::FunctionNotFound,
            missing,
        ] {
            assert!(matches!(told::<u32>(Err(unknown)), Ok(None)));
        }
        assert!(matches!(told(Ok(1)), Ok(Some(1))));
        let lost = told::<u32>(Err(NvmlError::GpuLost));
        assert!(matches!(lost, Err(NvmlError::GpuLost)));
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = Inventory::read(Some(Path::new("/nonexistent/libnvidia-ml.so.1"))).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/libnvidia-ml.so.1"),
            "{error}"
        );
    }
}
