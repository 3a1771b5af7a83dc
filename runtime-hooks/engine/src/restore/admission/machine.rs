//! Checks whether this machine's driver and CPU are good enough for an image.

use stasis_config::{Cpu, Settings};
use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::driver_version::DriverVersion;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_linux::procfs::cpu_flags;

use super::moved;
use crate::error::admission::AdmissionError;
use crate::image::manifest::Manifest;

/// The first driver branch that restores to another GPU.
const FIRST_TO_MIGRATE: u32 = 580;

/// Refuses an older driver; a version that cannot be parsed does not count as older.
pub(super) fn check_version(
    manifest: &Manifest,
    inventory: &Inventory,
) -> Result<(), AdmissionError> {
    let image = DriverVersion::parse(&manifest.driver_version);
    let here = DriverVersion::parse(&inventory.driver_version);
    match (image, here) {
        (Some(image), Some(here)) if here < image => Err(AdmissionError::OlderDriver {
            image: manifest.driver_version.clone(),
            here: inventory.driver_version.clone(),
        }),
        _ => Ok(()),
    }
}

pub(super) fn check_migration(
    pairs: &[(GpuUuid, GpuUuid)],
    inventory: &Inventory,
) -> Result<(), AdmissionError> {
    let here = DriverVersion::parse(&inventory.driver_version);
    match (moved(pairs).next(), here) {
        (Some((old, new)), Some(here)) if here.branch() < FIRST_TO_MIGRATE => {
            Err(AdmissionError::NoMigration {
                here: inventory.driver_version.clone(),
                old: *old,
                new: *new,
            })
        }
        _ => Ok(()),
    }
}

/// A program that has chosen an instruction at its start ends with SIGILL where it is missing,
/// maybe much later. Unknown CPU flags refuse nothing.
pub(super) fn check_cpu(settings: &Settings, manifest: &Manifest) -> Result<(), AdmissionError> {
    let (Some(made_on), Ok(flags)) = (&manifest.made_on, cpu_flags()) else {
        return Ok(());
    };
    let lacking = made_on.lacking(&flags);
    if lacking.is_empty() || flags.is_empty() || settings.restore.cpu == Cpu::Ignore {
        return Ok(());
    }
    Err(AdmissionError::OtherCpu {
        lacking: lacking.join(", "),
    })
}
