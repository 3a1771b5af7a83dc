//! Machines and processes with GPUs, for the tests of this crate and of the engine, which includes
//! this file: tests of another crate are not seen.
#![allow(dead_code, reason = "each crate uses some of it")]

use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::gpu_use::{CudaProcess, GpuUse};
use stasis_gpu::cuda::nvml::{Gpu, GpuFacts, Inventory, Mig, Persistence};

/// A machine with this number of equal GPUs; the first has the UUID 01..., and so on.
pub(crate) fn inventory(gpus: u8) -> Inventory {
    let mut inventory = Inventory {
        driver_version: "580.95.05".into(),
        ..Inventory::default()
    };
    for number in 0..gpus {
        let uuid = GpuUuid::from_bytes([number + 1; 16]);
        inventory.gpus.push(Gpu {
            uuid,
            name: "H200".into(),
            memory_bytes: 100 << 20,
        });
        let facts = GpuFacts {
            index: number.into(),
            minor: number.into(),
            persistence: Persistence::On,
            mig: Mig::Disabled,
            mps_clients: Vec::new(),
            numa_node: None,
        };
        inventory.facts.insert(uuid, facts);
        inventory.free_bytes.insert(uuid, 100 << 20);
    }
    inventory
}

/// `processes` processes, each on eight GPUs, [1; 16] to [8; 16].
pub(crate) fn on_eight_gpus(processes: i32) -> Vec<CudaProcess> {
    let gpus = (1..=8).map(|number| GpuUse {
        uuid: GpuUuid::from_bytes([number; 16]),
        memory_bytes: 140 << 30,
    });
    let gpus: Vec<_> = gpus.collect();
    let processes = (1..=processes).map(|pid| CudaProcess {
        pid,
        name: "pt_data_worker_".to_owned(),
        gpus: gpus.clone(),
    });
    processes.collect()
}
