//! The parts of a node that a test host lacks: a CDI file for its GPU, systemctl, and a training.

use anyhow::Result;
use serde_json::json;
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{DEVICES, DRIVER};
use stasis_integration::host::{Host, c_build};

/// The pages' training image: here a counter, the only difference from a real node.
pub(super) const IMAGE: &str = "example.com/train:latest";
/// The image's archive in the host, since none can be pulled.
pub(super) const ARCHIVE: &str = "/root/train.tar";
const CDI: &str = "/etc/cdi/nvidia.json";
const SYSTEMCTL: &str = "/usr/local/bin/systemctl";
/// A replacement for systemd, which test hosts lack.
const RESTART: &str = r#"#!/bin/bash -e
[ "$1" = restart ]
case $2 in
    docker) daemon=dockerd probe="docker info" ;;
    containerd) daemon=containerd probe="ctr version" ;;
esac
! pgrep -x $daemon || pkill -x $daemon
while pgrep -x $daemon; do sleep 0.1; done
setsid $daemon </dev/null >>/var/log/$daemon.log 2>&1 &
for try in {1..600}; do $probe >/dev/null 2>&1 && exit; sleep 0.1; done
exit 1
"#;

/// Makes the file that `--device nvidia.com/gpu=all` needs.
pub(super) fn has_a_gpu(host: &Host) -> Result<()> {
    let nodes = DEVICES.map(|path| json!({ "path": path }));
    let driver = json!({
        "hostPath": DRIVER, "containerPath": DRIVER, "options": ["ro", "nosuid", "nodev", "rbind"],
    });
    let library_path = format!("LD_LIBRARY_PATH={DRIVER}/lib64");
    let cdi = json!({
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{ "name": "all", "containerEdits": { "deviceNodes": nodes } }],
        "containerEdits": { "env": [library_path], "mounts": [driver] },
    });
    host.run(&["mkdir", "-p", "/etc/cdi"])?;
    host.write(CDI, &cdi.to_string())
}

pub(super) fn has_systemctl(host: &Host) -> Result<()> {
    host.script(SYSTEMCTL, RESTART)
}

pub(super) fn has_an_image(host: &Host) -> Result<()> {
    let counter = c_build::build()?.join("bin/counter");
    let image = Image::new(IMAGE)?.program(&counter)?;
    let image = image.command(&["/bin/counter", "10000"]);
    image.write(&host.path(ARCHIVE))
}
