//! NVML's report on one GPU.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use stasis_linux::error_chain;
use stasis_linux::numa::NumaNode;

use super::{Gpu, GpuFacts, InventoryError, Mig, Persistence, UnreadGpu, query_failed};

/// More processes do not begin on a GPU between the two queries of its processes.
const MOST_LISTS: u32 = 100;

/// All data that is read of a GPU.
pub(super) struct GpuReport {
    pub(super) gpu: Gpu,
    pub(super) facts: GpuFacts,
    pub(super) free_bytes: u64,
    pub(super) used_bytes: u64,
    /// The processes on it, by pid, with their memory if it is known.
    pub(super) processes: Vec<(i32, Option<u64>)>,
}

impl GpuReport {
    /// # Errors
    /// The first query that failed.
    pub(super) fn read(index: u32, device: &Device<'_>) -> Result<Self, InventoryError> {
        let uuid = device.uuid().map_err(query_failed("a GPU's UUID"))?;
        let memory = device
            .memory_info()
            .map_err(query_failed("a GPU's memory"))?;
        let running = listed(|| device.running_compute_processes())
            .map_err(query_failed("a GPU's processes"))?;
        let processes = running.into_iter().filter_map(|process| {
            let memory_bytes = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            Some((i32::try_from(process.pid).ok()?, memory_bytes))
        });
        Ok(Self {
            gpu: Gpu {
                uuid: uuid.parse()?,
                name: device.name().map_err(query_failed("a GPU's name"))?,
                memory_bytes: memory.total,
            },
            facts: GpuFacts::read(index, device)?,
            free_bytes: memory.free,
            used_bytes: memory.used,
            processes: processes.collect(),
        })
    }
}

impl UnreadGpu {
    /// Makes the entry of a GPU without a report; `device` is `None` for one without a handle.
    pub(super) fn of(device: Option<&Device<'_>>, error: &dyn std::error::Error) -> Self {
        Self {
            uuid: device.and_then(|device| device.uuid().ok()?.parse().ok()),
            minor: device.and_then(|device| device.minor_number().ok()),
            error: error_chain(error),
        }
    }
}

impl GpuFacts {
    fn read(index: u32, device: &Device<'_>) -> Result<Self, InventoryError> {
        let persistence = supported(device.is_in_persistent_mode());
        let mig = supported(device.mig_mode().map(|mode| mode.current));
        let clients = supported(listed(|| device.mps_running_compute_processes()));
        Ok(Self {
            index,
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
            numa_node: device
                .pci_info()
                .ok()
                .and_then(|pci| NumaNode::of_pci_device(&pci.bus_id)),
        })
    }
}

/// Lists processes. NVML is asked for their number, and then for them: a process that has begun in
/// between is one too many (nvmlDeviceGetComputeRunningProcesses, `NVML_ERROR_INSUFFICIENT_SIZE`).
fn listed<T>(list: impl Fn() -> Result<T, NvmlError>) -> Result<T, NvmlError> {
    let is_over =
        |answer: &Result<T, NvmlError>| !matches!(answer, Err(NvmlError::InsufficientSize(_)));
    let mut tries = (1..MOST_LISTS).map(|_| list());
    tries.find(is_over).unwrap_or_else(&list)
}

/// Returns `None` for a query that NVML, or the GPU, does not support: NVML returns an error.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_has_grown_meanwhile_is_asked_for_again() {
        let asked = Cell::new(0);
        let grows = |until: u32| {
            asked.set(0);
            listed(|| {
                asked.set(asked.get() + 1);
                match asked.get() < until {
                    true => Err(NvmlError::InsufficientSize(None)),
                    false => Ok(asked.get()),
                }
            })
        };
        assert!(matches!(grows(1), Ok(1)));
        assert!(matches!(grows(3), Ok(3)));
        let for_ever = grows(u32::MAX);
        assert!(matches!(for_ever, Err(NvmlError::InsufficientSize(_))));
        assert_eq!(asked.get(), MOST_LISTS);
        let other = listed(|| Err::<(), _>(NvmlError::Unknown));
        assert!(matches!(other, Err(NvmlError::Unknown)));
    }

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
}
