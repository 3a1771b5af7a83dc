//! Reads the machine's GPUs and each process's GPU memory from NVML.

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

/// The memory of one process on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuUse {
    /// The GPU.
    pub uuid: GpuUuid,
    /// GPU memory of the process in bytes, its context included; `None` if NVML does not
    /// report it.
    pub memory_bytes: Option<u64>,
}

/// Whether the driver keeps an unused GPU initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Yes; the checkpoint calls need it.
    On,
    /// No.
    Off,
    /// This GPU or NVML does not support the query.
    NotSupported,
}

/// The MIG mode of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mig {
    /// The GPU is split into slices.
    Enabled,
    /// The GPU supports MIG, but is not split.
    Disabled,
    /// This GPU or NVML does not support MIG.
    NotSupported,
}

/// Facts about a GPU that hold on this machine only; no manifest records them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuFacts {
    /// The number in the path of its device node, `/dev/nvidiaN`.
    pub minor: u32,
    /// Its persistence mode.
    pub persistence: Persistence,
    /// Its MIG mode.
    pub mig: Mig,
    /// The processes that use it through an MPS server.
    pub mps_clients: Vec<i32>,
}

/// All GPUs of the machine and the processes that use them.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The driver's version, e.g. "580.159.04".
    pub driver_version: String,
    /// All GPUs.
    pub gpus: Vec<Gpu>,
    /// Further facts about each GPU.
    pub facts: BTreeMap<GpuUuid, GpuFacts>,
    /// Free memory of each GPU in bytes.
    pub free_bytes: BTreeMap<GpuUuid, u64>,
    /// The GPUs that each process uses.
    pub processes: BTreeMap<i32, Vec<GpuUse>>,
}

/// An error of reading the GPUs.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// NVML is missing or does not start.
    #[error("cannot use NVML ({path}); name the library in the settings (driver.nvml)")]
    Open {
        /// The library that was tried last.
        path: PathBuf,
        /// The error of NVML.
        #[source]
        source: NvmlError,
    },
    /// A query failed.
    #[error("NVML cannot report {what}")]
    Query {
        /// The fact that was queried.
        what: &'static str,
        /// The error of NVML.
        #[source]
        source: NvmlError,
    },
    /// NVML returned a UUID in an unknown form (a MIG slice has another one).
    #[error("NVML returned a GPU UUID in an unknown form")]
    Uuid(#[from] InvalidGpuUuid),
}

impl Inventory {
    /// Reads the machine's GPUs through the given NVML, or the first one of `SEARCH` that starts.
    ///
    /// # Errors
    /// [`InventoryError`].
    pub fn read(library: Option<&Path>) -> Result<Self, InventoryError> {
        let nvml = open(library)?;
        let mut inventory = Self {
            driver_version: nvml
                .sys_driver_version()
                .map_err(query_failed("the driver version"))?,
            ..Self::default()
        };
        let count = nvml
            .device_count()
            .map_err(query_failed("the number of GPUs"))?;
        for index in 0..count {
            inventory.add(&nvml, index)?;
        }
        Ok(inventory)
    }

    fn add(&mut self, nvml: &Nvml, index: u32) -> Result<(), InventoryError> {
        let device = nvml
            .device_by_index(index)
            .map_err(query_failed("a GPU by its index"))?;
        let uuid: GpuUuid = device
            .uuid()
            .map_err(query_failed("a GPU's UUID"))?
            .parse()?;
        let name = device.name().map_err(query_failed("a GPU's name"))?;
        let memory = device
            .memory_info()
            .map_err(query_failed("a GPU's memory"))?;
        self.gpus.push(Gpu {
            uuid,
            name,
            memory_bytes: memory.total,
        });
        self.free_bytes.insert(uuid, memory.free);
        self.facts.insert(uuid, GpuFacts::read(&device)?);
        let running = device
            .running_compute_processes()
            .map_err(query_failed("a GPU's processes"))?;
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

    /// The GPU memory of a process; empty if NVML does not list it.
    #[must_use]
    pub fn uses(&self, pid: i32) -> Vec<GpuUse> {
        self.processes.get(&pid).cloned().unwrap_or_default()
    }
}

impl GpuFacts {
    fn read(device: &Device<'_>) -> Result<Self, InventoryError> {
        let persistence = supported(device.is_in_persistent_mode());
        let mig = supported(device.mig_mode().map(|mode| mode.current));
        let clients = supported(device.mps_running_compute_processes());
        Ok(Self {
            minor: device
                .minor_number()
                .map_err(query_failed("the number of a GPU's device node"))?,
            persistence: match persistence.map_err(query_failed("a GPU's persistence mode"))? {
                Some(true) => Persistence::On,
                Some(false) => Persistence::Off,
                None => Persistence::NotSupported,
            },
            mig: match mig.map_err(query_failed("a GPU's MIG mode"))? {
                Some(0) => Mig::Disabled,
                Some(_) => Mig::Enabled,
                None => Mig::NotSupported,
            },
            mps_clients: clients
                .map_err(query_failed("a GPU's MPS clients"))?
                .unwrap_or_default()
                .iter()
                .filter_map(|client| i32::try_from(client.pid).ok())
                .collect(),
        })
    }
}

/// NVML returns an error for a query that it, or the GPU, does not support: that is `None`.
fn supported<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
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

fn query_failed(what: &'static str) -> impl Fn(NvmlError) -> InventoryError {
    move |source| InventoryError::Query { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_that_is_not_supported_is_no_error() {
        let missing = NvmlError::FailedToLoadSymbol("nvmlDeviceGetMigMode".to_owned());
        for unknown in [
            NvmlError::NotSupported,
            NvmlError::FunctionNotFound,
            missing,
        ] {
            assert!(matches!(supported::<u32>(Err(unknown)), Ok(None)));
        }
        assert!(matches!(supported(Ok(1)), Ok(Some(1))));
        let lost = supported::<u32>(Err(NvmlError::GpuLost));
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
