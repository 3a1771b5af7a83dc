//! A unit or a session from which stasis was called ends, and everything in it is killed; the
//! keeper is in a cgroup of its own.

use anyhow::{Result, ensure};
use stasis_integration::node::Node;

use crate::job::Jobs;

const CHECKPOINT: &str = "podman container checkpoint --leave-running job";
const SUSPEND: &str =
    "cuda-checkpoint --toggle --container $(podman inspect --format '{{.Id}}' job)";
/// A scope, named as logind names them.
const SESSION: &str = "session-7.scope";

/// A backup that a timer runs; its job runs in another unit, has port 10000 and counts two answers.
pub(crate) fn service_is_killed(node: &mut Node) -> Result<()> {
    node.hold("checkpoint job")?;
    node.begin(CHECKPOINT)?;
    node.until_held()?;
    keeper_is_apart(node)?;
    // As an upgrade of any package does.
    node.run("systemctl daemon-reload")?;
    node.run("systemctl stop caller.service; ! pgrep -x 'podman|stasis-runtime'")?;
    node.let_go()?;
    node.nothing_is_left()?;
    node.answers(10000, "ok 2")
}

/// An operator is logged out in the middle of a checkpoint, and of a suspend; the job has port
/// 10000 and counts on from `next`.
pub(crate) fn session_is_killed(node: &mut Node, next: u64) -> Result<()> {
    for (command, counted) in [(CHECKPOINT, next), (SUSPEND, next + 1)] {
        node.hold("checkpoint job")?;
        let scope = format!("systemd-run -q --collect --scope --unit={SESSION}");
        node.run(&format!(
            "setsid {scope} {command} </dev/null >/root/session 2>&1 &"
        ))?;
        node.until_held()?;
        let engine = "pgrep -x 'stasis-runtime|cuda-checkpoint'";
        let cgroup = node.run(&format!("cat /proc/$({engine})/cgroup"))?;
        ensure!(cgroup.ends_with(SESSION), "{command}: in {cgroup}");
        keeper_is_apart(node)?;
        node.run(&format!("systemctl kill --signal=KILL {SESSION}"))?;
        node.run(&format!(
            "while {engine} || pgrep -x podman; do sleep 0.2; done"
        ))?;
        node.let_go()?;
        node.nothing_is_left()?;
        node.answers(10000, &format!("ok {counted}"))?;
    }
    Ok(())
}

fn keeper_is_apart(node: &mut Node) -> Result<()> {
    // The keeper takes its name some time after its start.
    let keeper = "until keeper=$(pgrep -x stasis-keeper); do sleep 0.2; done; \
                  cat /proc/$keeper/cgroup";
    let keeper = node.run(keeper)?;
    ensure!(keeper == "0::/stasis", "{keeper}");
    Ok(())
}
