use std::sync::Arc;

use serde_json::json;
use stasis_gpu::cuda::gpu_use::GpuUse;
use stasis_gpu::cuda::nvml::{Mig, Persistence};
use stasis_gpu::ledger::{Reservation, WaitLimit};

use super::*;
use crate::container::spec::tests::spec;
use crate::restore::admission::visible_gpus::tests::inventory;

const MIB: u64 = 1 << 20;

fn uuid(byte: u8) -> GpuUuid {
    GpuUuid::from_bytes([byte; 16])
}

/// The image of a machine with two GPUs, of processes with so many bytes on each of them.
fn manifest(bytes: &[&[(u8, u64)]]) -> Manifest {
    let mut manifest = Manifest::new("c1", String::new(), "580.95.05".to_owned());
    manifest.gpus = inventory(2).gpus;
    manifest.processes = (1..)
        .zip(bytes)
        .map(|(pid, gpus)| CudaProcess {
            pid,
            name: "p".into(),
            gpus: gpus
                .iter()
                .map(|(gpu, bytes)| GpuUse {
                    uuid: uuid(*gpu),
                    memory_bytes: *bytes,
                })
                .collect(),
        })
        .collect();
    manifest
}

/// A container that is given these GPUs.
fn given(gpus: &[u8]) -> Spec {
    let devices: Vec<_> = gpus
        .iter()
        .map(|gpu| json!({"path": format!("/dev/nvidia{}", gpu - 1), "type": "c"}))
        .collect();
    spec(json!({"linux": {"devices": devices}}))
}

/// Places the image for a container with this specification.
fn place_for(
    settings: &Settings,
    manifest: &Manifest,
    inventory: &Inventory,
    spec: &Spec,
) -> Result<(Pairs, Needs), AdmissionError> {
    let requested = RequestedMap::of(spec, &settings.restore.gpu_map)?;
    let given = allocated(spec, inventory);
    place(settings, manifest, inventory, &given, &requested)
}

fn refusal(manifest: &Manifest, inventory: &Inventory, spec: &Spec) -> String {
    let settings = Settings::default();
    match place_for(&settings, manifest, inventory, spec) {
        Ok((pairs, needs)) => match reserve(&needs, inventory) {
            Ok(()) => format!("admitted {pairs:?}"),
            Err(denial) => denial.to_string(),
        },
        Err(denial) => denial.to_string(),
    }
}

fn reserve(needs: &Needs, inventory: &Inventory) -> Result<(), AdmissionError> {
    let state_dir = tempfile::tempdir().unwrap();
    let reservation = Arc::new(Reservation::new(state_dir.path(), "c1"));
    let gpus = GpuMemory::new(&reservation, WaitLimit::none(), &Settings::default());
    needs.reserve(&gpus, || Ok(inventory.clone()), IMAGE)
}

fn free(inventory: &mut Inventory, gpu: u8, bytes: u64) {
    inventory.free_bytes.insert(uuid(gpu), bytes);
}

#[test]
fn the_processes_of_one_gpu_need_room_together() {
    let manifest = manifest(&[&[(1, 30 * MIB)], &[(1, 40 * MIB)]]);
    let mut inventory = inventory(1);
    free(&mut inventory, 1, 70 * MIB);
    assert!(refusal(&manifest, &inventory, &given(&[1])).starts_with("admitted"));
    free(&mut inventory, 1, 70 * MIB - 1);
    let text = refusal(&manifest, &inventory, &given(&[1]));
    assert!(
        text.contains("69 MiB free, and the image needs 70 MiB"),
        "{text}"
    );
    assert!(text.contains("restore again"), "{text}");
}

#[test]
fn room_is_looked_for_where_the_state_goes() {
    let manifest = manifest(&[&[(1, 30 * MIB), (2, 0)]]);
    let mut inventory = inventory(4);
    free(&mut inventory, 1, 0);
    free(&mut inventory, 4, 30 * MIB - 1);
    let text = refusal(&manifest, &inventory, &given(&[2, 3]));
    assert!(text.starts_with("admitted"), "{text}");
    let text = refusal(&manifest, &inventory, &given(&[2, 4]));
    assert!(text.contains(&uuid(4).to_string()), "{text}");
}

#[test]
fn a_gpu_that_is_not_given_is_named_with_those_that_are() {
    let manifest = manifest(&[&[(1, 1)], &[(2, 1)]]);
    let text = refusal(&manifest, &inventory(2), &given(&[2]));
    assert!(text.contains(&uuid(1).to_string()), "{text}");
    assert!(text.contains(&format!("it has {}", uuid(2))), "{text}");
}

#[test]
fn an_image_without_gpu_memory_needs_no_gpu() {
    assert_eq!(
        refusal(&manifest(&[&[]]), &inventory(0), &given(&[])),
        "admitted []"
    );
}

#[test]
fn impossible_sizes_of_an_image_do_not_overflow() {
    let manifest = manifest(&[&[(1, u64::MAX)], &[(1, u64::MAX)]]);
    assert!(!refusal(&manifest, &inventory(1), &given(&[1])).starts_with("admitted"));
}

#[test]
fn what_the_driver_restores_nothing_to_is_refused_with_advice() {
    type Change = fn(&mut stasis_gpu::cuda::nvml::GpuFacts);
    let cases: [(Change, &str); 3] = [
        (|facts| facts.mig = Mig::Enabled, "nvidia-smi -mig 0"),
        (|facts| facts.mps_clients = vec![7], "process 7"),
        (
            |facts| facts.persistence = Persistence::Off,
            "nvidia-smi -pm 1",
        ),
    ];
    let manifest = manifest(&[&[(1, 1)]]);
    for (change, part) in cases {
        let mut inventory = inventory(2);
        change(inventory.facts.get_mut(&uuid(1)).unwrap());
        let text = refusal(&manifest, &inventory, &given(&[1]));
        assert!(
            text.contains(part) && text.contains(&uuid(1).to_string()),
            "{text}"
        );
        // Nothing of that GPU is needed.
        assert!(refusal(&manifest, &inventory, &given(&[2])).starts_with("admitted"));
    }
    let mut inventory = inventory(1);
    let facts = inventory.facts.get_mut(&uuid(1)).unwrap();
    (facts.mig, facts.persistence) = (Mig::NotSupported, Persistence::NotSupported);
    assert!(refusal(&manifest, &inventory, &given(&[1])).starts_with("admitted"));
}

#[test]
fn persistence_mode_can_be_done_without() {
    let mut inventory = inventory(1);
    inventory.facts.get_mut(&uuid(1)).unwrap().persistence = Persistence::Off;
    let mut settings = Settings::default();
    settings.restore.persistence = stasis_config::Persistence::Ignore;
    let placed = place_for(&settings, &manifest(&[&[(1, 1)]]), &inventory, &given(&[1]));
    assert!(placed.is_ok());
}

#[test]
fn an_older_driver_is_refused_and_one_that_tells_no_version_is_not() {
    let manifest = manifest(&[&[(1, 1)]]);
    let mut inventory = inventory(1);
    for (version, admitted) in [
        ("580.82.07", false),
        ("570.211.01", false),
        ("580.95.05", true),
        ("580.105.08", true),
        ("unknown", true),
    ] {
        inventory.driver_version = version.to_owned();
        let text = refusal(&manifest, &inventory, &given(&[1]));
        assert_eq!(text.starts_with("admitted"), admitted, "{version}: {text}");
        assert!(admitted || text.contains(version), "{text}");
    }
}

#[test]
fn drivers_before_580_restore_only_to_the_same_gpu() {
    let mut manifest = manifest(&[&[(1, 1)]]);
    manifest.driver_version = "570.86.15".to_owned();
    let mut inventory = inventory(2);
    inventory.driver_version = "575.57.08".to_owned();
    assert!(refusal(&manifest, &inventory, &given(&[1])).starts_with("admitted"));
    let text = refusal(&manifest, &inventory, &given(&[2]));
    assert!(text.contains("need driver 580"), "{text}");
}

#[test]
fn the_driver_is_given_a_map_only_if_something_moves_and_then_a_full_one() {
    let (one, two) = (uuid(1), uuid(2));
    let gpus = inventory(2).gpus;
    assert_eq!(full_map(vec![(one, one)], &gpus, &gpus), GpuMap::identity());
    let map = full_map(vec![(one, two)], &gpus, &gpus);
    assert_eq!(map.pairs(), [(one, two)]);
    assert_eq!(map.widened().unwrap().pairs(), [(one, two), (two, one)]);
}
