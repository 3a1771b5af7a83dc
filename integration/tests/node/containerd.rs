//! containerd in its unit, with systemd's cgroup driver and our shim: it is restarted in the middle
//! of a checkpoint, and while a task is suspended.

use anyhow::{Context, Result, ensure};
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{DEVICES, DRIVER};
use stasis_integration::node::Node;

use crate::job::Jobs;

const PORT: u16 = 10000;
const IMAGE: &str = "/root/during";
const TOGGLE: &str = "cuda-checkpoint --toggle --container task";

pub(crate) fn restarts(node: &mut Node) -> Result<()> {
    start(node)?;
    let shim = node.run("pgrep -x containerd-shim")?;

    node.hold("checkpoint task")?;
    node.begin(&format!("ctr tasks checkpoint --image-path {IMAGE} task"))?;
    node.until_held()?;
    // ctr pauses a task for its checkpoint, and cannot resume it without containerd.
    restart(node, "PAUSED").context("in a checkpoint")?;
    node.let_go()?;
    node.run("while pgrep -x stasis-runtime; do sleep 0.2; done; ctr tasks resume task")?;
    node.nothing_is_left()?;
    node.run(&format!("stasis verify --here {IMAGE}"))?;
    node.answers(PORT, "ok 1")?;

    node.run(TOGGLE)?;
    restart(node, "RUNNING").context("while it is suspended")?;
    node.run(TOGGLE)?;
    node.answers(PORT, "ok 2")?;

    ensure!(
        node.run("pgrep -x containerd-shim")? == shim,
        "another shim"
    );
    next_one_works(node)
}

/// Limits, which need cgroups of version 2 with all controllers and systemd's driver; and systemd
/// in a container.
pub(crate) fn limits_and_systemd(node: &mut Node) -> Result<()> {
    start_containerd(node)?;
    for check in ["limits", "oom", "systemd"] {
        node.run(&format!("/machine/on-node {check}"))
            .context(check)?;
    }
    node.run("while pgrep -x containerd-shim; do sleep 0.2; done")?;
    let left = node.run("ls /run/containerd/io.containerd.runtime.v2.task/default")?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}

fn start_containerd(node: &mut Node) -> Result<()> {
    // containerd's deadline for a shim that it finds is short for an emulated processor.
    node.run(
        "set -e
         install -m 755 /machine/containerd-shim-stasis-v2 /usr/local/bin/containerd-shim-runc-v2
         mkdir -p /etc/containerd /etc/systemd/system/containerd.service.d
         printf 'version = 2\n[timeouts]\n\"io.containerd.timeout.shim.load\" = \"300s\"\n' \
             >/etc/containerd/config.toml
         printf '[Service]\nTimeoutStartSec=600\n' \
             >/etc/systemd/system/containerd.service.d/patient.conf
         systemctl unmask containerd && systemctl start containerd
         ctr image import /machine/image.tar",
    )?;
    Ok(())
}

fn start(node: &mut Node) -> Result<()> {
    start_containerd(node)?;
    let devices: String = DEVICES.map(|device| format!("--device {device} ")).concat();
    node.run(&format!(
        "ctr run -d --runc-systemd-cgroup --cgroup system.slice:stasis:task --net-host {devices} \
         --mount type=bind,src={DRIVER},dst={DRIVER},options=rbind:ro \
         --env LD_LIBRARY_PATH={DRIVER}/lib64 --env STASIS_TAG=task \
         {} task /bin/memcheck 4 {PORT} </dev/null >/run/ctr 2>&1 || {{ cat /run/ctr; exit 1; }}",
        Image::DEFAULT_NAME
    ))?;
    node.answers(PORT, "ok 0")?;
    is_of_systemd(node, "RUNNING")
}

/// Restarts containerd, as a package's upgrade does.
fn restart(node: &mut Node, state: &str) -> Result<()> {
    node.run("systemctl restart containerd")?;
    is_of_systemd(node, state)
}

/// Checks that containerd reports this state, and that the task is in the scope that systemd made.
fn is_of_systemd(node: &mut Node, state: &str) -> Result<()> {
    let task = node.run("ctr tasks ls | grep '^task '")?;
    let words: Vec<_> = task.split_whitespace().collect();
    ensure!(words.last() == Some(&state), "{task}");
    let pid = words.get(1).context("no pid")?;
    let cgroup = node.run(&format!("cat /proc/{pid}/cgroup"))?;
    ensure!(cgroup == "0::/system.slice/stasis-task.scope", "{cgroup}");
    Ok(())
}

fn next_one_works(node: &mut Node) -> Result<()> {
    node.run("ctr containers checkpoint --rw --image --task task localhost/task:1")?;
    node.answers(PORT, "ok 3")?;
    node.run(
        "ctr tasks kill -s KILL task; until ctr tasks rm task; do sleep 0.2; done
         while pgrep -x containerd-shim; do sleep 0.2; done
         ctr containers rm task
         ctr containers restore --rw --live task localhost/task:1 </dev/null",
    )?;
    node.answers(PORT, "ok 3")?;
    is_of_systemd(node, "RUNNING")?;
    node.nothing_is_left()
}
