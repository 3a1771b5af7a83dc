//! A unit from which stasis was called ends, and everything in it is killed; the keeper is in a
//! cgroup of its own.

use anyhow::{Result, ensure};
use stasis_integration::node::Node;

use crate::job::Jobs;

/// A backup that a timer runs; its job runs in another unit, has port 10000 and counts two answers.
pub(crate) fn service_is_killed(node: &mut Node) -> Result<()> {
    node.hold("checkpoint job")?;
    let kill = "--property=KillSignal=SIGKILL";
    let run = format!("systemd-run -q --collect --unit=caller {kill}");
    let checkpoint = "podman container checkpoint --leave-running job";
    node.run(&format!("{run} {checkpoint}"))?;
    node.until_held()?;
    let keeper = node.run("cat /proc/$(pgrep -x stasis-keeper)/cgroup")?;
    ensure!(keeper == "0::/stasis", "{keeper}");
    // As an upgrade of any package does.
    node.run("systemctl daemon-reload")?;
    node.run("systemctl stop caller.service; ! pgrep -x 'podman|stasis-runtime'")?;
    node.let_go()?;
    node.nothing_is_left()?;
    node.answers(10000, "ok 2")
}
