//! Corrects device numbers of the new container's specification that are not this machine's.
//!
//! The kernel assigns the major number of nvidia-uvm (and of nvidia-caps) when the module is
//! loaded, so it may differ after a reboot or on another machine. Callers that keep a container's
//! specification (containerd) keep the old number in it, in the device and in the device cgroup's
//! rule; the low-level runtime reads both from `config.json`.
//!
//! GPUs have a fixed major number. A caller may give GPU 3 to a container as `/dev/nvidia0`, so
//! that its number does not match its name, and is right: another number would be another GPU.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path};

use rustix::fs::{major, minor};
use serde_json::{Value, json};

use crate::container::spec::{Device, Spec};

/// The major number of the GPUs, of nvidiactl and of nvidia-modeset (devices.txt of the kernel).
const GPUS: u32 = 195;
/// The devices of nvidia-uvm, each of which exists once.
const UVM: [&str; 2] = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];
/// The prefixes of devices of which there may be several, with the minor number of each. A
/// container may get one by the name of another, as with GPUs.
const NUMBERED: [&str; 3] = [
    "/dev/nvidia-caps/",
    "/dev/nvidia-caps-imex-channels/",
    "/dev/nvidia-nvswitch",
];

/// The type and number of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    /// "c" or "b".
    pub(crate) kind: &'static str,
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Number {
    /// The number in an entry of `linux.devices`.
    pub(crate) fn of(device: &Device) -> Option<Self> {
        Some(Self {
            kind: match device.kind.as_str() {
                "c" | "u" => "c",
                "b" => "b",
                _ => return None,
            },
            major: device.major.try_into().ok()?,
            minor: device.minor.try_into().ok()?,
        })
    }

    /// The number of a device node of this machine.
    pub(crate) fn here(path: &str) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        let kind = match found.file_type() {
            kind if kind.is_char_device() => "c",
            kind if kind.is_block_device() => "b",
            _ => return None,
        };
        Some(Self {
            kind,
            major: major(found.rdev()),
            minor: minor(found.rdev()),
        })
    }
}

/// Whether a path in a container is the path of one of NVIDIA's device nodes.
pub(crate) fn is_nvidia(path: &str) -> bool {
    let plain = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    plain && path.starts_with("/dev/nvidia")
}

/// Returns whether the kernel may have assigned the number in a specification another time.
fn is_stale(path: &str, old: Number, new: Number) -> bool {
    let is_for_gpus = old.major == GPUS || new.major == GPUS;
    if old == new || is_for_gpus || !is_nvidia(path) {
        return false;
    }
    let is_numbered = NUMBERED.iter().any(|start| path.starts_with(start));
    UVM.contains(&path) || is_numbered && old.kind == new.kind && old.minor == new.minor
}

/// Sets the numbers of NVIDIA's devices whose number the kernel assigns in the specification, and
/// in their rules of the device cgroup, to those that `here` returns. Returns a note for each
/// change.
pub(crate) fn correct(spec: &mut Spec, here: impl Fn(&str) -> Option<Number>) -> Vec<String> {
    let stale: Vec<(Device, Number, Number)> = spec
        .devices()
        .filter_map(|device| {
            let (old, new) = (Number::of(&device)?, here(&device.path)?);
            is_stale(&device.path, old, new).then_some((device, old, new))
        })
        .collect();
    let tree = spec.tree_mut();
    for entry in list_mut(tree, "/linux/devices") {
        let change = stale
            .iter()
            .find(|(device, ..)| entry["path"] == device.path.as_str());
        if let Some((.., new)) = change {
            entry["type"] = json!(new.kind);
            entry["major"] = json!(new.major);
            entry["minor"] = json!(new.minor);
        }
    }
    // Each rule is changed at most once: one device's new number may be another's old number.
    for rule in list_mut(tree, "/linux/resources/devices") {
        let change = stale.iter().find(|(_, old, _)| is_for(rule, *old));
        if let Some((.., new)) = change {
            rule["type"] = json!(new.kind);
            rule["major"] = json!(new.major);
            if !is_any(rule.get("minor")) {
                rule["minor"] = json!(new.minor);
            }
        }
    }
    let notes = stale.iter().map(|(device, old, new)| {
        format!(
            "{} is {}:{} here, not {}:{}",
            device.path, new.major, new.minor, old.major, old.minor
        )
    });
    notes.collect()
}

/// Whether a rule is for this device, or for all of its major number.
fn is_for(rule: &Value, number: Number) -> bool {
    let minor = rule.get("minor");
    rule.get("type").and_then(Value::as_str) == Some(number.kind)
        && rule.get("major") == Some(&json!(number.major))
        && (is_any(minor) || minor == Some(&json!(number.minor)))
}

fn is_any(number: Option<&Value>) -> bool {
    number.is_none_or(|number| number.is_null() || *number == -1)
}

fn list_mut<'t>(tree: &'t mut Value, pointer: &str) -> &'t mut [Value] {
    let found = tree.pointer_mut(pointer).and_then(Value::as_array_mut);
    found.map_or(&mut [], Vec::as_mut_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::spec::tests::spec;

    fn number(major: u32, minor: u32) -> Number {
        Number {
            kind: "c",
            major,
            minor,
        }
    }

    fn here(path: &str) -> Option<Number> {
        match path {
            "/dev/nvidia0" => Some(number(195, 0)),
            "/dev/nvidia-uvm" => Some(number(509, 0)),
            "/dev/nvidia-caps/nvidia-cap1" => Some(number(510, 1)),
            _ => None,
        }
    }

    fn device(path: &str, major: u32, minor: u32) -> Value {
        json!({"path": path, "type": "c", "major": major, "minor": minor, "uid": 7})
    }

    fn rule(major: i64, minor: &Value) -> Value {
        json!({"allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm"})
    }

    #[test]
    fn stale_numbers_become_this_machines_in_devices_and_rules() {
        // The two majors have changed places.
        let mut spec = spec(json!({"linux": {
            "devices": [
                device("/dev/nvidia0", 195, 0),
                device("/dev/nvidia-uvm", 510, 0),
                device("/dev/nvidia-uvm-tools", 510, 1),
                device("/dev/nvidia-caps/nvidia-cap1", 509, 1),
                device("/dev/fuse", 510, 0),
            ],
            "resources": {"devices": [
                {"allow": false, "access": "rwm"},
                rule(195, &Value::Null), rule(510, &json!(0)), rule(510, &json!(5)), rule(509, &json!(-1)),
            ]},
        }}));
        let notes = correct(&mut spec, here);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(notes[0], "/dev/nvidia-uvm is 509:0 here, not 510:0");
        let devices: Vec<_> = spec.devices().map(|d| (d.major, d.minor, d.uid)).collect();
        let uid = Some(7);
        assert_eq!(
            devices,
            [
                (195, 0, uid),
                (509, 0, uid),
                (510, 1, uid),
                (510, 1, uid),
                (510, 0, uid)
            ]
        );
        let rules = [
            json!({"allow": false, "access": "rwm"}),
            rule(195, &Value::Null),
            rule(509, &json!(0)),
            rule(510, &json!(5)),
            rule(510, &json!(-1)),
        ];
        assert_eq!(spec.device_rules(), rules);
    }

    #[test]
    fn what_is_right_is_left_alone() {
        let tree = json!({"linux": {"devices": [device("/dev/nvidia0", 195, 0)]}});
        let mut unchanged = spec(tree.clone());
        assert!(correct(&mut unchanged, here).is_empty());
        assert_eq!(*unchanged.tree_mut(), tree);
        assert!(correct(&mut spec(json!({})), here).is_empty());
    }

    #[test]
    fn a_gpu_or_an_instance_that_has_the_name_of_another_stays_what_it_is() {
        let tree = json!({"linux": {
            "devices": [
                device("/dev/nvidia0", 195, 3),
                device("/dev/nvidia-uvm", 195, 3),
                device("/dev/nvidia-caps/nvidia-cap1", 510, 7),
                device("/dev/nvidia-caps/nvidia-cap1", 508, 7),
            ],
            "resources": {"devices": [rule(195, &json!(3)), rule(510, &json!(7))]},
        }});
        let mut unchanged = spec(tree.clone());
        assert_eq!(correct(&mut unchanged, here), [""; 0]);
        assert_eq!(*unchanged.tree_mut(), tree);
        // A name on the host that leads to a GPU.
        let mut unchanged =
            spec(json!({"linux": {"devices": [device("/dev/nvidia-uvm", 510, 0)]}}));
        assert_eq!(correct(&mut unchanged, |_| Some(number(195, 0))), [""; 0]);
    }

    #[test]
    fn only_plain_paths_of_nvidia_are_nvidias() {
        assert!(is_nvidia("/dev/nvidia0") && is_nvidia("/dev/nvidia-caps/nvidia-cap1"));
        assert!(!is_nvidia("/dev/nvidia0/../sda") && !is_nvidia("/dev/null"));
    }

    #[test]
    fn the_number_of_a_node_of_this_machine() {
        assert_eq!(Number::here("/dev/null"), Some(number(1, 3)));
        assert_eq!(Number::here("/dev"), None);
        assert_eq!(Number::here("/nonexistent"), None);
    }
}
