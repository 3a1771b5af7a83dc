//! The driver and the GPUs.

use std::collections::BTreeMap;
use std::path::Path;

use stasis_config::Settings;
use stasis_gpu::cuda::nvml::{GpuFacts, Inventory, InventoryError, Mig, Persistence};
use stasis_linux::error_chain;

use super::{Finding, copying, fault, ok, warning};

const CONTROL: &str = "/dev/nvidiactl";
/// The first driver with the checkpoint calls, and the first that restores to other GPUs.
const CHECKPOINTS: u32 = 570;
const MAPS: u32 = 580;
/// Versions with faults that were reported, and where (2026-11).
const KNOWN: [(&str, &str); 2] = [
    (
        "595.71.05",
        "a restored process that is killed may hang the machine (cuda-checkpoint#53), and the \
         driver may hang (open-gpu-kernel-modules#1333)",
    ),
    (
        "610.",
        "a process may die when it is locked (cuda-checkpoint#58)",
    ),
];

/// Tries this machine's build of the driver, if it was not tried yet.
pub(super) fn findings(
    settings: &Settings,
    inventory: Result<&Inventory, &InventoryError>,
) -> Vec<Finding> {
    let mut found = vec![of_driver(inventory)];
    if let Ok(inventory) = inventory {
        found.extend(version(&inventory.driver_version));
        found.extend(inventory.unread.iter().map(|gpu| {
            let remedy = "read dmesg; reset the GPU or restart the machine";
            fault(
                "lost-gpu",
                format!("NVML cannot report on a GPU: {}", gpu.error),
                remedy,
            )
        }));
        let facts = inventory.facts.values();
        found.extend(facts.flat_map(|facts| of(settings, facts)));
        found.push(copying::finding(settings));
    }
    found
}

/// Reports the driver, and the GPUs that it has.
pub(super) fn of_driver(inventory: Result<&Inventory, &InventoryError>) -> Finding {
    match inventory {
        Ok(inventory) => {
            let mut products = BTreeMap::<&str, usize>::new();
            for gpu in &inventory.gpus {
                *products.entry(&gpu.name).or_default() += 1;
            }
            let products = products
                .iter()
                .map(|(name, count)| format!("{count} {name}"));
            let products = products.collect::<Vec<_>>().join(", ");
            let version = &inventory.driver_version;
            ok("driver", format!("{version}, GPUs: {products}"))
        }
        Err(error) if Path::new(CONTROL).exists() => fault(
            "driver",
            error_chain(error),
            "install the driver's libraries, or name them in the settings (driver.nvml)",
        ),
        // The library is as good as never there without the driver.
        Err(_) => warning(
            "driver",
            format!("NVIDIA's driver is not loaded: there is no {CONTROL}"),
            format!(
                "nothing, if this machine has no GPU; else install driver {CHECKPOINTS} or newer"
            ),
        ),
    }
}

fn version(version: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let branch = version
        .split('.')
        .next()
        .and_then(|branch| branch.parse::<u32>().ok());
    match branch {
        Some(branch) if branch < CHECKPOINTS => found.push(fault(
            "driver-version",
            format!("driver {version} is too old: it cannot checkpoint GPU state"),
            format!("install driver {CHECKPOINTS} or newer"),
        )),
        Some(branch) if branch < MAPS => found.push(warning(
            "driver-maps",
            format!("driver {version} restores a container only to the GPUs that it had"),
            format!("driver {MAPS} or newer restores to other GPUs, too"),
        )),
        _ => {}
    }
    for (known, what) in KNOWN {
        if version.starts_with(known) {
            let remedy = "install another version";
            found.push(warning(
                "driver-known",
                format!("driver {version}: {what}"),
                remedy,
            ));
        }
    }
    found
}

fn of(settings: &Settings, facts: &GpuFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    let gpu = facts.index;
    let ignored = settings.restore.persistence == stasis_config::Persistence::Ignore;
    if facts.persistence == Persistence::Off && !ignored {
        found.push(fault(
            "no-persistence",
            format!("GPU {gpu} is not in persistence mode: the driver may refuse a restore"),
            format!("nvidia-smi -i {gpu} -pm 1, and nvidia-persistenced at boot"),
        ));
    }
    if facts.mig == Mig::Enabled {
        found.push(warning(
            "mig",
            format!("GPU {gpu} is in MIG mode: it has no checkpoints and no restores"),
            format!("nvidia-smi -i {gpu} -mig 0"),
        ));
    }
    if !facts.mps_clients.is_empty() {
        found.push(warning(
            "mps",
            format!(
                "processes {:?} use GPU {gpu} through the Multi-Process Service: they cannot be \
                 checkpointed",
                facts.mps_clients
            ),
            "echo quit | nvidia-cuda-mps-control",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_settings_ignore_is_no_fault() {
        let mut settings = Settings::default();
        let facts = GpuFacts {
            index: 3,
            minor: 3,
            persistence: Persistence::Off,
            mig: Mig::Disabled,
            mps_clients: vec![4711],
            numa_node: None,
        };
        let found = of(&settings, &facts);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].remedy.starts_with("nvidia-smi -i 3 -pm 1"));
        assert!(
            found[1].evidence.contains("processes [4711] use GPU 3"),
            "{found:?}"
        );
        settings.restore.persistence = stasis_config::Persistence::Ignore;
        assert_eq!(of(&settings, &facts).len(), 1);
    }

    #[test]
    fn versions_have_what_they_have() {
        let ids = |text| {
            let found = version(text).into_iter();
            found.map(|finding| finding.id).collect::<Vec<_>>()
        };
        assert_eq!(ids("565.57.01"), ["driver-version"]);
        let old = version("565.57.01").remove(0);
        assert!(
            old.evidence.starts_with("driver 565.57.01 is too old: "),
            "{old}"
        );
        assert_eq!(old.remedy, "install driver 570 or newer");
        assert_eq!(ids("570.124.06"), ["driver-maps"]);
        assert_eq!(ids("580.159.04"), Vec::<String>::new());
        assert_eq!(ids("595.71.05"), ["driver-known"]);
        assert_eq!(ids("610.12"), ["driver-known"]);
        assert_eq!(ids("unknown"), Vec::<String>::new());
    }
}
