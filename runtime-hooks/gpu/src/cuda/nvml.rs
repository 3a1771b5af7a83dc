//! Reads the machine's GPUs and each process's GPU memory from NVML.
//!
//! A GPU that NVML cannot report on (one that has fallen off the bus) is a fact about that GPU, and
//! concerns its users alone. NVML itself may hang with such a GPU, so it has a deadline.

mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_host::deadline::{Overdue, within};
use stasis_linux::numa::NumaNode;

use crate::cuda::nvml::report::GpuReport;
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

/// The use of one GPU by one process, as NVML lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedUse {
    /// The GPU.
    pub uuid: GpuUuid,
    /// GPU memory of the process in bytes, its context included; `None` if NVML does not
    /// report it (vGPU, confidential computing).
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
    /// Its number among the machine's GPUs, as NVML counts them.
    pub index: u32,
    /// The number in the path of its device node, `/dev/nvidiaN`.
    pub minor: u32,
    /// Its persistence mode.
    pub persistence: Persistence,
    /// Its MIG mode.
    pub mig: Mig,
    /// The processes that use it through an MPS server.
    pub mps_clients: Vec<i32>,
    /// The NUMA node near to it; `None` where all of the machine's memory is as near.
    pub numa_node: Option<NumaNode>,
}

/// A GPU that NVML cannot report on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadGpu {
    /// Its identity, if NVML knows that.
    pub uuid: Option<GpuUuid>,
    /// The number in the path of its device node, if NVML knows that.
    pub minor: Option<u32>,
    /// The error.
    pub error: String,
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
    /// Allocated memory of each GPU in bytes, of any process.
    pub used_bytes: BTreeMap<GpuUuid, u64>,
    /// The GPUs that each process uses.
    pub processes: BTreeMap<i32, Vec<ListedUse>>,
    /// GPUs that none of the above is known of.
    pub unread: Vec<UnreadGpu>,
}

/// An error of reading the GPUs.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InventoryError {
    #[error("cannot use NVML ({path}); name the library in the settings (driver.nvml)")]
    Open { path: PathBuf, source: NvmlError },
    #[error(
        "NVML does not report on the GPUs; if nvidia-smi hangs as well, a GPU of this machine has \
         failed (see dmesg)"
    )]
    NoAnswer(#[source] Overdue),
    #[error("NVML cannot report {what}")]
    Query {
        what: &'static str,
        source: NvmlError,
    },
    /// NVML returned a UUID in an unknown form (a MIG slice has another one).
    #[error("NVML returned a GPU UUID in an unknown form")]
    Uuid(#[from] InvalidGpuUuid),
}

impl Inventory {
    /// Reads the machine's GPUs through the NVML of the settings, or the first one of `SEARCH` that
    /// starts.
    pub fn read(settings: &Settings) -> Result<Self, InventoryError> {
        let library = settings.driver.nvml.clone();
        let read = within(settings.deadlines.nvml(), move || {
            Self::read_through(library.as_deref())
        });
        read.map_err(InventoryError::NoAnswer)?
    }

    fn read_through(library: Option<&Path>) -> Result<Self, InventoryError> {
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
            match nvml.device_by_index(index) {
                Ok(device) => match GpuReport::read(index, &device) {
                    Ok(report) => inventory.add(report),
                    Err(error) => inventory.unread.push(UnreadGpu::of(Some(&device), &error)),
                },
                Err(error) => inventory.unread.push(UnreadGpu::of(None, &error)),
            }
        }
        Ok(inventory)
    }

    fn add(&mut self, report: GpuReport) {
        let uuid = report.gpu.uuid;
        self.gpus.push(report.gpu);
        self.facts.insert(uuid, report.facts);
        self.free_bytes.insert(uuid, report.free_bytes);
        self.used_bytes.insert(uuid, report.used_bytes);
        for (pid, memory_bytes) in report.processes {
            let uses = self.processes.entry(pid).or_default();
            uses.push(ListedUse { uuid, memory_bytes });
        }
    }

    /// Returns the GPU with this device node, if NVML cannot report on it. A GPU that has fallen
    /// off the bus has no number: then it is any node that no other GPU has.
    pub fn unread_at(&self, minor: u32) -> Option<&UnreadGpu> {
        if self.facts.values().any(|facts| facts.minor == minor) {
            return None;
        }
        let is_it = |gpu: &&UnreadGpu| gpu.minor.is_none_or(|known| known == minor);
        self.unread.iter().find(is_it)
    }

    /// Returns the GPU with this UUID, if NVML cannot report on it, as [`Inventory::unread_at`].
    pub fn unread(&self, uuid: GpuUuid) -> Option<&UnreadGpu> {
        if self.facts.contains_key(&uuid) {
            return None;
        }
        let is_it = |gpu: &&UnreadGpu| gpu.uuid.is_none_or(|known| known == uuid);
        self.unread.iter().find(is_it)
    }

    /// Returns the NUMA node that is near to all of these GPUs.
    pub fn numa_node(&self, gpus: impl IntoIterator<Item = GpuUuid>) -> Option<NumaNode> {
        let node = |uuid| self.facts.get(&uuid)?.numa_node;
        let mut nodes = gpus.into_iter().map(node);
        let first = nodes.next()??;
        nodes.all(|node| node == Some(first)).then_some(first)
    }

    /// Returns the GPU memory of a process; empty if NVML does not list it.
    pub fn uses(&self, pid: i32) -> Vec<ListedUse> {
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

fn query_failed(what: &'static str) -> impl Fn(NvmlError) -> InventoryError {
    move |source| InventoryError::Query { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let missing = Path::new("/nonexistent/libnvidia-ml.so.1");
        let error = Inventory::read_through(Some(missing)).unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/libnvidia-ml.so.1"),
            "{error}"
        );
    }

    #[test]
    fn a_gpu_that_cannot_be_read_is_known_by_what_no_other_has() {
        let mut inventory = crate::cuda::job::tests::fixtures::inventory(2);
        let uuid = |number| GpuUuid::from_bytes([number; 16]);
        assert_eq!(inventory.unread_at(5), None, "it is none of this machine's");
        inventory.unread = vec![UnreadGpu {
            uuid: None,
            minor: None,
            error: "lost".to_owned(),
        }];
        assert_eq!(inventory.unread_at(1), None);
        assert!(inventory.unread_at(2).is_some());
        assert_eq!(inventory.unread(uuid(2)), None);
        assert!(inventory.unread(uuid(3)).is_some());
        inventory.unread[0].uuid = Some(uuid(3));
        inventory.unread[0].minor = Some(2);
        assert!(inventory.unread_at(2).is_some() && inventory.unread(uuid(3)).is_some());
        assert!(inventory.unread_at(3).is_none() && inventory.unread(uuid(4)).is_none());
    }
}
