use std::os::unix::fs::{MetadataExt, PermissionsExt};

use serde_json::json;

use super::*;

/// A specification with these contents that is in no bundle.
pub(crate) fn spec(tree: Value) -> Spec {
    Spec {
        path: "/nonexistent/config.json".into(),
        original: Vec::new(),
        tree,
    }
}

#[test]
fn what_is_not_there_is_empty() {
    let empty = spec(json!({}));
    assert_eq!(empty.devices().count(), 0);
    assert_eq!(empty.binds().count(), 0);
    assert_eq!(empty.annotation("a"), None);
    assert_eq!(empty.environment("A"), None);
    assert!(empty.device_rules().is_empty());
}

#[test]
fn what_is_there_is_found() {
    let spec = spec(json!({
        "annotations": {"io.stasis.gpu-map": "x"},
        "process": {"env": ["A=1", "B=2=3", "A=4"]},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/a", "source": "/b", "options": ["ro", "rbind"]},
            {"destination": "/c", "source": "/d", "type": "bind"},
        ],
        "linux": {"devices": [
            {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 438},
            {"path": 5},
        ], "namespaces": [
            {"type": "pid"}, {"type": "ipc", "path": ""}, {"path": "/nowhere"},
            {"type": "network", "path": "/run/netns/pod"},
        ]},
    }));
    assert_eq!(spec.annotation("io.stasis.gpu-map"), Some("x"));
    assert_eq!(spec.environment("A"), Some("4"));
    assert_eq!(spec.environment("B"), Some("2=3"));
    let sources: Vec<_> = spec.binds().map(|bind| bind.source).collect();
    assert_eq!(sources, ["/b", "/d"]);
    let joined: Vec<_> = spec.joined_namespaces().collect();
    assert_eq!(joined, [("network", "/run/netns/pod")]);
    let devices: Vec<_> = spec.devices().collect();
    assert_eq!(devices.len(), 1);
    assert_eq!((devices[0].major, devices[0].mode), (195, Some(0o666)));
}

#[test]
fn it_is_written_with_all_that_is_unknown_and_put_back_to_the_byte() {
    let bundle = tempfile::tempdir().unwrap();
    let path = bundle.path().join(FILE_NAME);
    let original = "{ \"ociVersion\":\"9.9\",  \"new\": {\"big\": 18446744073709551615} }\n";
    fs::write(&path, original).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut spec = Spec::read(bundle.path()).unwrap();
    spec.tree_mut()["linux"] = json!({"devices": []});
    spec.write().unwrap();
    let written: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(written["new"]["big"], json!(u64::MAX));
    assert_eq!(written["linux"], json!({"devices": []}));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    spec.put_back().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), original);
    assert_eq!(fs::read_dir(bundle.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_read_is_named() {
    let bundle = tempfile::tempdir().unwrap();
    let missing = Spec::read(bundle.path()).unwrap_err().to_string();
    assert!(missing.contains("config.json"), "{missing}");
    fs::write(bundle.path().join(FILE_NAME), "{").unwrap();
    let error = Spec::read(bundle.path()).unwrap_err();
    assert!(matches!(error, SpecError::Malformed { .. }), "{error}");
}
