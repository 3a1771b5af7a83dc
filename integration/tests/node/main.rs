//! Tests that need a node: systemd, another kernel, version 2 cgroups with all controllers, and a
//! power failure.

mod callers_unit;
mod containerd;
mod job;
mod nfs;
mod power;

use anyhow::Result;
use stasis_integration::node::Node;

use crate::job::Jobs;

/// One boot for all tests, in the order in which they need it.
#[test]
fn on_a_node() -> Result<()> {
    let mut node = Node::boot()?;
    node.run_job("job", 10000, "")?;
    suspended_job_outlives_a_reload_of_systemd(&mut node)?;
    callers_unit::service_is_killed(&mut node)?;
    image_outlives_a_power_failure(node)
}

#[test]
#[ignore = "part of make test-node"]
fn callers_session_is_killed() -> Result<()> {
    let mut node = Node::boot()?;
    node.run_job("job", 10000, "")?;
    callers_unit::session_is_killed(&mut node, 1)
}

#[test]
#[ignore = "part of make test-node"]
fn containerd_restarts() -> Result<()> {
    containerd::restarts(&mut Node::boot()?)
}

#[test]
#[ignore = "part of make test-node"]
fn limits_and_systemd() -> Result<()> {
    containerd::limits_and_systemd(&mut Node::boot()?)
}

#[test]
#[ignore = "part of make test-node"]
fn power_fails_in_a_checkpoint() -> Result<()> {
    power::fails_in_a_checkpoint(Node::boot()?)
}

#[test]
#[ignore = "part of make test-node"]
fn power_fails_after_a_checkpoint() -> Result<()> {
    power::fails_after_a_checkpoint(Node::boot()?)
}

#[test]
#[ignore = "part of make test-node"]
fn nfs_has_images() -> Result<()> {
    nfs::has_images(Node::boot()?)
}

fn suspended_job_outlives_a_reload_of_systemd(node: &mut Node) -> Result<()> {
    node.toggle("job")?;
    node.run("systemctl daemon-reload")?;
    node.toggle("job")?;
    node.answers(10000, "ok 1")?;
    Ok(())
}

/// The image is on the disk when the checkpoint succeeds, also if the container goes on: at the end
/// of a container, podman's unmounting would write it there.
fn image_outlives_a_power_failure(mut node: Node) -> Result<()> {
    // From now on nothing reaches the disk without a sync.
    node.run("sync; sysctl vm.dirty_writeback_centisecs=0 vm.dirty_expire_centisecs=360000")?;
    node.run("podman container checkpoint --leave-running job")?;
    node.answers(10000, "ok 3")?;
    let mut node = node.lose_power()?;
    node.unit_has_run_at_boot()?;
    node.run("podman container restore job")?;
    node.answers(10000, "ok 3")?;
    Ok(())
}
