//! Whether this machine can take the GPU state of an image, asked before anything is started.
//!
//! A restore that the driver fails for want of memory is final for the process (measured on
//! driver 580.159: every later try says 304), so room is looked for first.

use std::collections::BTreeMap;

use crate::cuda::{GpuMap, GpuUuid};
use crate::engine::Engine;
use crate::error::{Failure, Refusal};
use crate::gpu::Inventory;
use crate::manifest::Manifest;
use crate::watchdog::WatchedDriver;

/// What a restore that was admitted works with.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The driver.
    pub(crate) driver: WatchedDriver,
    /// Which GPU takes the place of which.
    pub(crate) map: GpuMap,
}

/// Admits a restore, or says what is missing.
///
/// # Errors
/// [`Refusal`].
pub(crate) fn admit(engine: &Engine, id: &str, manifest: &Manifest) -> Result<Admission, Refusal> {
    let driver = engine.open_driver(id)?;
    let inventory = Inventory::read(engine.settings.driver.nvml.as_deref())?;
    check_room(manifest, &inventory)?;
    Ok(Admission {
        driver,
        map: GpuMap::identity(),
    })
}

fn check_room(manifest: &Manifest, inventory: &Inventory) -> Result<(), Refusal> {
    for gpu in &manifest.gpus {
        if !inventory.free_bytes.contains_key(&gpu.uuid) {
            let there: Vec<String> = inventory
                .gpus
                .iter()
                .map(|gpu| format!("{} ({})", gpu.uuid, gpu.name))
                .collect();
            let there = if there.is_empty() {
                "none".to_owned()
            } else {
                there.join(", ")
            };
            return Err(Refusal::MissingGpu {
                uuid: gpu.uuid,
                name: gpu.name.clone(),
                there,
            });
        }
    }
    for (uuid, needed) in needed(manifest) {
        let free = inventory.free_bytes.get(&uuid).copied().unwrap_or(0);
        if free < needed {
            return Err(Refusal::NoRoom { uuid, needed, free });
        }
    }
    Ok(())
}

/// The bytes that all processes of the image together need on each GPU.
fn needed(manifest: &Manifest) -> BTreeMap<GpuUuid, u64> {
    let mut needed = BTreeMap::new();
    for gpu in manifest.processes.iter().flat_map(|process| &process.gpus) {
        let sum: &mut u64 = needed.entry(gpu.uuid).or_default();
        *sum = sum.saturating_add(gpu.memory_bytes.unwrap_or(0));
    }
    needed
}

impl Admission {
    /// Adds to an out-of-memory answer of the driver what was needed and what there was: somebody
    /// took the room after it was looked for.
    pub(crate) fn explain(
        &self,
        engine: &Engine,
        manifest: &Manifest,
        failure: Failure,
    ) -> Failure {
        let inventory = Inventory::read(engine.settings.driver.nvml.as_deref());
        let (Failure::Job(error), Ok(inventory)) = (&failure, inventory) else {
            return failure;
        };
        if failure.out_of_memory().is_none() {
            return failure;
        }
        let room = needed(manifest).into_iter().map(|(uuid, needed)| {
            let free = inventory.free_bytes.get(&uuid).copied().unwrap_or(0);
            format!(
                "{uuid} has {} MiB free, and the image needs {} MiB",
                free >> 20,
                needed >> 20
            )
        });
        let room = room.collect::<Vec<_>>().join(", ");
        Failure::OutOfGpuMemory {
            fault: error.fault.to_string(),
            room,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{Gpu, GpuUse};
    use crate::manifest::CudaProcess;

    const MIB: u64 = 1 << 20;

    fn uuid(byte: u8) -> GpuUuid {
        GpuUuid::from_bytes([byte; 16])
    }

    fn manifest(bytes: &[u64]) -> Manifest {
        let mut manifest = Manifest::new("c1", String::new(), String::new());
        manifest.gpus = vec![Gpu {
            uuid: uuid(1),
            name: "H200".into(),
            memory_bytes: 100 * MIB,
        }];
        manifest.processes = (1..)
            .zip(bytes)
            .map(|(pid, bytes)| CudaProcess {
                pid,
                name: "p".into(),
                gpus: vec![GpuUse {
                    uuid: uuid(1),
                    memory_bytes: Some(*bytes),
                }],
            })
            .collect();
        manifest
    }

    fn inventory(uuid: GpuUuid, free: u64) -> Inventory {
        let gpu = Gpu {
            uuid,
            name: "H200".into(),
            memory_bytes: 100 * MIB,
        };
        Inventory {
            gpus: vec![gpu],
            free_bytes: BTreeMap::from([(uuid, free)]),
            ..Inventory::default()
        }
    }

    #[test]
    fn the_processes_of_one_gpu_need_room_together() {
        let manifest = manifest(&[30 * MIB, 40 * MIB]);
        assert!(check_room(&manifest, &inventory(uuid(1), 70 * MIB)).is_ok());
        let refusal = check_room(&manifest, &inventory(uuid(1), 69 * MIB)).unwrap_err();
        let text = refusal.to_string();
        assert!(
            text.contains("69 MiB free") && text.contains("70 MiB"),
            "{text}"
        );
    }

    #[test]
    fn a_gpu_that_is_not_here_is_named_with_those_that_are() {
        let refusal = check_room(&manifest(&[1]), &inventory(uuid(2), 70 * MIB)).unwrap_err();
        let text = refusal.to_string();
        assert!(text.contains(&uuid(1).to_string()) && text.contains(&uuid(2).to_string()));
    }

    #[test]
    fn impossible_sizes_of_an_image_do_not_overflow() {
        let manifest = manifest(&[u64::MAX, u64::MAX]);
        assert!(check_room(&manifest, &inventory(uuid(1), u64::MAX - 1)).is_err());
    }
}
