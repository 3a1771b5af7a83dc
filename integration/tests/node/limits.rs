//! Memory limits, which systemd has written and knows as its own.

use anyhow::{Result, ensure};
use stasis_integration::node::Node;

use crate::job::Jobs;

const PORT: u16 = 10006;
const LIMIT: u64 = 64 << 20;

/// While a job is suspended its limits are raised, without systemd's knowledge: it writes its own
/// again.
pub(crate) fn raised_limits_and_systemd(node: &mut Node) -> Result<()> {
    // What the driver copies alone becomes memory of the container.
    node.run(
        "printf 'gpu_checkpoint.path = \"driver\"\nmemory.raise_limits = true\n' \
         >>/etc/stasis/stasis.toml",
    )?;
    let high = LIMIT / 2;
    let limits = format!("--memory={LIMIT} --memory-swap={LIMIT} --cgroup-conf=memory.high={high}");
    node.run_job("limited", PORT, &limits)?;
    ensure!(limit(node, "max")? == LIMIT);
    ensure!(limit(node, "high")? == high);
    node.toggle("limited")?;
    let raised = limit(node, "max")?;
    ensure!(raised > LIMIT, "not raised: {raised}");
    ensure!(limit(node, "high")? > high);
    node.run("systemctl daemon-reload")?;
    // What is above it is killed: nothing here, where the stand-in's GPU memory counts as well.
    ensure!(limit(node, "max")? == LIMIT);
    node.toggle("limited")?;
    ensure!(limit(node, "max")? == LIMIT);
    ensure!(limit(node, "high")? == high);
    node.answers(PORT, "ok 1")?;
    node.run("podman rm -f -t 0 limited")?;
    Ok(())
}

fn limit(node: &mut Node, name: &str) -> Result<u64> {
    let file = file(node)?;
    Ok(node.run(&format!("cat {file}.{name}"))?.parse()?)
}

/// Without its ending.
fn file(node: &mut Node) -> Result<String> {
    let pid = node.run("podman inspect --format '{{.State.Pid}}' limited")?;
    let cgroup = node.run(&format!("sed s/^0::// /proc/{pid}/cgroup"))?;
    Ok(format!("/sys/fs/cgroup{cgroup}/memory"))
}
