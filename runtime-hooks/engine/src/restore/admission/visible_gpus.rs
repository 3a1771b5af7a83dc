//! The GPUs of the new container, from its specification.
//!
//! A specification can assign GPUs as device entries (engines' device options, CDI, Kubernetes'
//! device plugin), as bind mounts of device nodes, or, with NVIDIA's legacy hook, only by an
//! environment variable. The number in a node's path identifies the GPU, since the driver's
//! libraries open that path.

use serde_json::Value;
use stasis_gpu::cuda::device_node::minor_of;
use stasis_gpu::cuda::nvml::{Gpu, GpuFacts, Inventory};

use crate::container::spec::Spec;

/// The environment variable that NVIDIA's legacy hook reads.
const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Its value if the names are those of mounts in this directory (the device plugin's strategy
/// "volume-mounts").
const AS_MOUNTS: &str = "/var/run/nvidia-container-devices";

/// The GPUs of this machine that this specification assigns, in the machine's order.
pub(crate) fn allocated(spec: &Spec, inventory: &Inventory) -> Vec<Gpu> {
    let mut minors: Vec<u32> = spec
        .devices()
        .filter_map(|device| minor_of(&device.path))
        .collect();
    if minors.is_empty() {
        let binds = spec.binds();
        minors = binds
            .filter_map(|bind| minor_of(bind.destination))
            .collect();
    }
    if !minors.is_empty() {
        return select(inventory, |facts, _| minors.contains(&facts.minor));
    }
    let wanted = spec.environment(VISIBLE_DEVICES).unwrap_or_default();
    let visible = match wanted {
        AS_MOUNTS => visible(&names_of_mounts(spec), inventory),
        wanted => visible(wanted, inventory),
    };
    if visible.is_empty() && sees_all(spec) {
        return inventory.gpus.clone();
    }
    visible
}

fn names_of_mounts(spec: &Spec) -> String {
    let names = spec.binds().filter_map(|bind| {
        let name = bind.destination.strip_prefix(AS_MOUNTS)?;
        name.strip_prefix('/')
    });
    names.collect::<Vec<_>>().join(",")
}

/// Whether a container whose specification names no GPU has all of them: it has the machine's
/// `/dev`, or may open every device.
fn sees_all(spec: &Spec) -> bool {
    let mut binds = spec.binds();
    binds.any(|bind| bind.destination == "/dev")
        || spec.device_rules().last().is_some_and(allows_all)
}

/// A rule without type and numbers, or with -1 for them, is for every device.
fn allows_all(rule: &Value) -> bool {
    let every = |key| match rule.get(key) {
        None | Some(Value::Null) => true,
        Some(value) => value == "a" || value == -1,
    };
    rule.get("allow") == Some(&Value::Bool(true))
        && ["type", "major", "minor"].into_iter().all(every)
}

fn select(inventory: &Inventory, choose: impl Fn(&GpuFacts, &Gpu) -> bool) -> Vec<Gpu> {
    let is_chosen = |gpu: &&Gpu| {
        let facts = inventory.facts.get(&gpu.uuid);
        facts.is_some_and(|facts| choose(facts, gpu))
    };
    inventory.gpus.iter().filter(is_chosen).cloned().collect()
}

/// Parses the variable as nvidia-container-toolkit does: "all", or a mixture of indices and UUIDs;
/// other values ("none", "void", MIG slices) name no GPU.
fn visible(wanted: &str, inventory: &Inventory) -> Vec<Gpu> {
    if wanted == "all" {
        return inventory.gpus.clone();
    }
    let names: Vec<&str> = wanted.split(',').map(str::trim).collect();
    select(inventory, |facts, gpu| {
        let (index, uuid) = (facts.index.to_string(), gpu.uuid.to_string());
        names
            .iter()
            .any(|name| *name == index || name.eq_ignore_ascii_case(&uuid))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::container::spec::tests::spec;
    use serde_json::json;

    pub(crate) use crate::fixtures::inventory;

    /// The numbers of the GPUs that this specification assigns on a machine with four.
    fn given(tree: Value) -> Vec<u8> {
        let gpus = allocated(&spec(tree), &inventory(4));
        gpus.iter().map(|gpu| gpu.uuid.as_bytes()[0]).collect()
    }

    fn device(path: &str) -> Value {
        json!({"path": path, "type": "c", "major": 195, "minor": 9})
    }

    #[test]
    fn device_entries_come_before_everything_else() {
        let devices = [
            "/dev/nvidiactl",
            "/dev/nvidia3",
            "/dev/nvidia1",
            "/dev/nvidia9",
        ]
        .map(device);
        let tree = json!({
            "linux": {"devices": devices, "resources": {"devices": [{"allow": true}]}},
            "process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]},
        });
        assert_eq!(given(tree), [2, 4]);
    }

    #[test]
    fn then_bind_mounts_of_nodes() {
        let mount = |path| json!({"destination": path, "source": path, "options": ["bind"]});
        let mounts = ["/dev/nvidiactl", "/dev/nvidia2"].map(mount);
        let tree = json!({"mounts": mounts, "process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}});
        assert_eq!(given(tree), [3]);
    }

    #[test]
    fn then_the_variable_of_the_legacy_hook() {
        let with = |value| json!({"process": {"env": [format!("NVIDIA_VISIBLE_DEVICES={value}")]}});
        assert_eq!(given(with("all")), [1, 2, 3, 4]);
        assert_eq!(given(with("3,0")), [1, 4]);
        assert_eq!(given(with("GPU-02020202-0202-0202-0202-020202020202")), [2]);
        assert_eq!(
            given(with("GPU-02020202-0202-0202-0202-020202020202, 2")),
            [2, 3]
        );
        for none in ["", "none", "void", "9", "MIG-1", "0:1"] {
            assert_eq!(given(with(none)), [0; 0], "{none}");
        }
    }

    #[test]
    fn or_the_names_of_mounts_if_it_says_so() {
        let mount = |name| {
            let destination = format!("/var/run/nvidia-container-devices/{name}");
            json!({"destination": destination, "source": "/dev/null", "options": ["bind"]})
        };
        let mounts = ["GPU-02020202-0202-0202-0202-020202020202", "3"].map(mount);
        let variable = "NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices";
        let tree = json!({"mounts": mounts, "process": {"env": [variable]}});
        assert_eq!(given(tree), [2, 4]);
    }

    #[test]
    fn a_gpu_that_cannot_be_read_keeps_its_number() {
        let variable = json!({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=2"]}});
        let mut inventory = inventory(4);
        let lost = inventory.gpus.remove(1);
        inventory.facts.remove(&lost.uuid);
        let gpus = allocated(&spec(variable), &inventory);
        assert_eq!(
            gpus,
            [inventory.gpus[1].clone()],
            "the third of the machine"
        );
        assert_eq!(gpus[0].uuid.as_bytes()[0], 3);
    }

    #[test]
    fn a_privileged_container_without_a_list_has_all() {
        let rules = |rules: Value| json!({"linux": {"resources": {"devices": rules}}});
        assert_eq!(
            given(rules(
                json!([{"allow": false}, {"allow": true, "access": "rwm"}])
            )),
            [1, 2, 3, 4]
        );
        assert_eq!(
            given(rules(
                json!([{"allow": true, "type": "a", "major": -1, "minor": -1}])
            )),
            [1, 2, 3, 4]
        );
        assert_eq!(
            given(rules(json!([{"allow": true}, {"allow": false}]))),
            [0; 0]
        );
        assert_eq!(
            given(rules(
                json!([{"allow": true, "type": "c", "major": 1, "minor": 3}])
            )),
            [0; 0]
        );
        let dev =
            json!({"mounts": [{"destination": "/dev", "source": "/dev", "options": ["rbind"]}]});
        assert_eq!(given(dev), [1, 2, 3, 4]);
        assert_eq!(given(json!({})), [0; 0]);
    }
}
