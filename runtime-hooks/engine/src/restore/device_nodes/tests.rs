use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::*;
use crate::container::spec::tests::spec;

/// A directory that stands for a container's `/dev`.
struct Dev {
    directory: tempfile::TempDir,
    opened: OwnedFd,
}

impl Dev {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let opened = fs::File::open(directory.path()).unwrap().into();
        Self { directory, opened }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn number(&self, name: &str) -> (u32, u32) {
        let found = fs::symlink_metadata(self.path(name)).unwrap();
        assert!(found.file_type().is_char_device());
        (major(found.rdev()), minor(found.rdev()))
    }
}

/// Nodes that may be made anywhere: /dev/null's number under NVIDIA's name.
fn nodes(paths: &[&str]) -> DeviceNodes {
    let devices: Vec<_> = paths
        .iter()
        .map(|path| json!({"path": path, "type": "c", "major": 1, "minor": 3, "fileMode": 8630, "gid": 7}))
        .collect();
    DeviceNodes::of(&spec(json!({"linux": {"devices": devices}})))
}

fn only(path: &str) -> Node {
    nodes(&[path]).nodes.pop().unwrap()
}

#[test]
fn a_node_is_made_with_its_owner_and_mode() {
    let dev = Dev::new();
    assert!(only("/dev/nvidia0").place(&dev.opened).unwrap());
    assert_eq!(dev.number("nvidia0"), (1, 3));
    let found = fs::metadata(dev.path("nvidia0")).unwrap();
    assert_eq!(
        (found.mode() & 0o7777, found.uid(), found.gid()),
        (0o666, 0, 7)
    );
    // A correct node is left alone, whatever its mode.
    fs::set_permissions(dev.path("nvidia0"), Permissions::from_mode(0o600)).unwrap();
    assert!(!only("/dev/nvidia0").place(&dev.opened).unwrap());
    assert_eq!(
        fs::metadata(dev.path("nvidia0")).unwrap().ino(),
        found.ino()
    );
    assert_eq!(fs::read_dir(dev.directory.path()).unwrap().count(), 1);
}

#[test]
fn whatever_has_the_name_is_replaced_and_no_link_is_followed() {
    let (dev, elsewhere) = (Dev::new(), tempfile::tempdir().unwrap());
    let target = elsewhere.path().join("target");
    fs::write(&target, "kept").unwrap();
    symlink(&target, dev.path("nvidia0")).unwrap();
    assert!(only("/dev/nvidia0").place(&dev.opened).unwrap());
    assert_eq!(dev.number("nvidia0"), (1, 3));
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    fs::write(dev.path("nvidia1"), "a file").unwrap();
    assert!(only("/dev/nvidia1").place(&dev.opened).unwrap());
    fs::create_dir(dev.path("nvidia2")).unwrap();
    assert!(only("/dev/nvidia2").place(&dev.opened).is_err());
    assert_eq!(fs::read_dir(dev.directory.path()).unwrap().count(), 3);
}

#[test]
fn a_directory_is_made_and_no_link_to_one_is_followed() {
    let (dev, elsewhere) = (Dev::new(), tempfile::tempdir().unwrap());
    assert!(
        only("/dev/nvidia-caps/nvidia-cap1")
            .place(&dev.opened)
            .unwrap()
    );
    assert_eq!(dev.number("nvidia-caps/nvidia-cap1"), (1, 3));
    symlink(elsewhere.path(), dev.path("nvidia-other")).unwrap();
    assert!(only("/dev/nvidia-other/x").place(&dev.opened).is_err());
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn strays_are_nodes_of_gpus_that_the_specification_does_not_name() {
    let dev = Dev::new();
    for node in [
        "/dev/nvidia0",
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/dev/nvidia-caps/nvidia2",
    ] {
        only(node).place(&dev.opened).unwrap();
    }
    fs::write(dev.path("nvidia3"), "no node").unwrap();
    let is_gpu = |name: &str| minor_of(&format!("/dev/{name}")).is_some();
    let wanted = nodes(&["/dev/nvidia1"]);
    assert_eq!(wanted.strays(&dev.opened, is_gpu).unwrap(), ["nvidia0"]);
}

#[test]
fn the_machines_own_directory_is_never_touched() {
    let own = i32::try_from(std::process::id()).unwrap();
    let own = ProcessRef::open(own).unwrap().unwrap();
    assert!(open_dev(&own).unwrap().is_none());
    assert!(nodes(&["/dev/nvidia77"]).make(&own).unwrap().is_empty());
    assert!(!Path::new("/dev/nvidia77").exists());
}

#[test]
fn only_nvidias_devices_are_ours() {
    let paths = [
        "/dev/null",
        "/dev/nvidia-a/b/c",
        "/dev/nvidia0/../sda",
        "/nvidia0",
    ];
    assert!(nodes(&paths).nodes.is_empty());
}
