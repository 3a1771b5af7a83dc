//! What GPU state needs of the GPUs that it goes to, and whether they have it.

use std::collections::BTreeMap;

use stasis_config::Settings;

use crate::cuda::GpuUuid;
use crate::denial::Denial;
use crate::gpu::{Inventory, Mig, Persistence};
use crate::gpu_map::list;
use crate::manifest::CudaProcess;

/// Bytes that are needed on each GPU, by all processes together.
#[derive(Debug, Default)]
pub(super) struct Needs(BTreeMap<GpuUuid, u64>);

/// What is to be restored, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject {
    Image,
    PausedContainer,
}

impl Needs {
    /// What these processes held, in its new place. NVML's figure for a process has its context
    /// in it.
    pub(super) fn of<'p>(
        processes: impl Iterator<Item = &'p CudaProcess>,
        place: impl Fn(GpuUuid) -> Option<GpuUuid>,
    ) -> Self {
        let mut needs = BTreeMap::new();
        for gpu in processes.flat_map(|process| &process.gpus) {
            if let Some(new) = place(gpu.uuid) {
                let sum: &mut u64 = needs.entry(new).or_default();
                *sum = sum.saturating_add(gpu.memory_bytes.unwrap_or(0));
            }
        }
        Self(needs)
    }

    pub(super) fn check(
        &self,
        settings: &Settings,
        inventory: &Inventory,
        subject: Subject,
    ) -> Result<(), Denial> {
        for (uuid, needed) in &self.0 {
            check_mode(*uuid, settings, inventory)?;
            let free = inventory.free_bytes.get(uuid).copied().unwrap_or(0);
            if free < *needed {
                return Err(Denial::NoRoom {
                    uuid: *uuid,
                    needed: *needed,
                    free,
                    what: subject.name(),
                    again: subject.verb(),
                });
            }
        }
        Ok(())
    }

    /// What is needed on each GPU, and what is free there now.
    pub(super) fn beside(&self, inventory: &Inventory) -> String {
        let room = self.0.iter().map(|(uuid, needed)| {
            let free = inventory.free_bytes.get(uuid).copied().unwrap_or(0);
            format!(
                "{uuid} has {} MiB free, and the image needs {} MiB",
                free >> 20,
                needed.div_ceil(1 << 20)
            )
        });
        room.collect::<Vec<_>>().join(", ")
    }
}

/// Whether the driver restores anything to a GPU.
fn check_mode(uuid: GpuUuid, settings: &Settings, inventory: &Inventory) -> Result<(), Denial> {
    let Some(facts) = inventory.facts.get(&uuid) else {
        return Err(Denial::GpuVanished {
            uuid,
            there: list(&inventory.gpus),
        });
    };
    if facts.mig == Mig::Enabled {
        return Err(Denial::Mig { uuid });
    }
    if let Some(client) = facts.mps_clients.first() {
        return Err(Denial::Mps {
            uuid,
            client: *client,
        });
    }
    let required = settings.restore.persistence == stasis_config::Persistence::Require;
    if required && facts.persistence == Persistence::Off {
        return Err(Denial::NoPersistence { uuid });
    }
    Ok(())
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::Image => "the image",
            Self::PausedContainer => "the container",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Image => "restore",
            Self::PausedContainer => "resume",
        }
    }
}
