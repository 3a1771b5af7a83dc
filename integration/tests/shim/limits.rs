//! The shim's counts and limits: processes, metrics, updates, and the kernel's kills for want of
//! memory.

use anyhow::{Context, Result};
use serde_json::json;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{Containerd, INIT, Resources, Streams, process};
use stasis_integration::client::shim::in_host;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{Cgroups, HostKind};
use stasis_integration::on_hosts;

const ALWAYS: [fn(&StasisHost, &Containerd) -> Result<()>; 1] = [pids_name_the_execs];
const HYBRID: [fn(&StasisHost, &Containerd) -> Result<()>; 3] = [
    metrics_of_version_1_are_plausible,
    limits_of_version_1_are_changed,
    want_of_memory_is_told,
];
const V2: [fn(&StasisHost, &Containerd) -> Result<()>; 2] = [
    metrics_of_version_2_are_plausible,
    settings_of_version_2_are_changed,
];

on_hosts!(checks: trixie_hybrid, sid_hybrid, trixie_v2, sid_v2);

fn checks(kind: HostKind) -> Result<()> {
    let of_version = match kind.cgroups {
        Cgroups::Hybrid => &HYBRID[..],
        Cgroups::V2 => &V2[..],
    };
    in_host(kind, &[&ALWAYS[..], of_version].concat())
}

fn pids_name_the_execs(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "listed";
    let init = stasis.start_container(client, id, &[], &["/bin/pause"])?;
    assert_eq!(client.pids(id)?, [(init, None)]);
    let streams = Streams::default();
    client.exec(id, "e1", &streams, process(&["/bin/pause"], false))?;
    let first = client.start(id, "e1")?;
    // The shell has a child, which belongs to no exec id.
    let command = process(&["sh", "-c", "/bin/pause & wait"], false);
    client.exec(id, "e2", &streams, command)?;
    let second = client.start(id, "e2")?;
    wait_until_clear(|| {
        let found = client.pids(id)?;
        Ok((found.len() != 4).then(|| format!("{found:?}")))
    })?;
    let found = client.pids(id)?;
    assert!(found.contains(&(init, None)), "{found:?}");
    assert!(found.contains(&(first, Some("e1".into()))), "{found:?}");
    assert!(found.contains(&(second, Some("e2".into()))), "{found:?}");
    let unnamed = found.iter().filter(|(_, exec)| exec.is_none());
    assert_eq!(unnamed.count(), 2, "{found:?}");
    stasis.ctr_remove(id)
}

/// Starts a container that has used processor time and holds memory.
fn start_busy(stasis: &StasisHost, client: &Containerd, id: &str) -> Result<()> {
    let script = "dd if=/dev/zero of=/dev/null bs=1M count=500; exec /bin/pause";
    let pid = stasis.start_container(client, id, &[], &["sh", "-c", script])?;
    wait_until_clear(|| {
        let name = std::fs::read_to_string(stasis.path(format!("/proc/{pid}/comm")))?;
        Ok((name != "pause\n").then(|| format!("{id} is {name:?}")))
    })
}

fn metrics_of_version_1_are_plausible(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "metrics";
    start_busy(stasis, client, id)?;
    let usage = client.metrics(id)?;
    assert_eq!(usage.type_url, "io.containerd.cgroups.v1.Metrics");
    assert_eq!(usage.pids, Some(1));
    let (cpu, memory) = (
        usage.cpu.context("no cpu")?,
        usage.memory.context("no memory")?,
    );
    let counted = |controller, file: &str| -> Result<u64> {
        let path = stasis.cgroup(Cgroups::Hybrid, controller, id).join(file);
        Ok(std::fs::read_to_string(path)?.trim().parse()?)
    };
    let (now, limit) = (counted("cpuacct", "cpuacct.usage")?, usage.memory_limit);
    assert!(cpu > 0 && cpu <= now && cpu >= now / 2, "{cpu} of {now} ns");
    assert!((4096..1 << 28).contains(&memory), "{memory} bytes");
    assert_eq!(limit, Some(counted("memory", "memory.limit_in_bytes")?));
    stasis.ctr_remove(id)
}

/// containerd's own shim reports figures without a controller as 0, even processor time, which
/// version 2 counts without one.
fn metrics_of_version_2_are_plausible(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "metrics";
    start_busy(stasis, client, id)?;
    let usage = client.metrics(id)?;
    assert_eq!(usage.type_url, "io.containerd.cgroups.v2.Metrics");
    let cgroup = stasis.cgroup(Cgroups::V2, "", id);
    let controllers = std::fs::read_to_string(cgroup.join("cgroup.controllers"))?;
    let has = |name| controllers.split_whitespace().any(|word| word == name);
    let text = std::fs::read_to_string(cgroup.join("cpu.stat"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "));
    let now = line.context("no usage in cpu.stat")?.parse::<u64>()? * 1000;
    let cpu = usage.cpu.unwrap_or_default();
    let plausible = cpu > 0 && cpu <= now && cpu >= now / 2;
    assert!(plausible || !has("cpu") && cpu == 0, "{cpu} of {now} ns");
    assert!(usage.pids == Some(1) || !has("pids"), "{usage:?}");
    let memory = usage.memory.unwrap_or_default();
    let plausible = (4096..1 << 28).contains(&memory);
    assert!(plausible || !has("memory"), "{memory} bytes");
    stasis.ctr_remove(id)
}

fn limits_of_version_1_are_changed(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "limits";
    stasis.start_container(client, id, &["--memory-limit", "67108864"], &["/bin/pause"])?;
    let read = |controller, file: &str| {
        let path = stasis.cgroup(Cgroups::Hybrid, controller, id).join(file);
        std::fs::read_to_string(path).map(|text| text.trim().to_owned())
    };
    assert_eq!(read("memory", "memory.limit_in_bytes")?, "67108864");
    let resources = json!({
        "memory": { "limit": 33_554_432 },
        "pids": { "limit": 77 },
        "cpu": { "shares": 512 },
    });
    client.update(id, &Resources(resources))?;
    assert_eq!(read("memory", "memory.limit_in_bytes")?, "33554432");
    assert_eq!(read("pids", "pids.max")?, "77");
    assert_eq!(read("cpu", "cpu.shares")?, "512");
    assert_eq!(client.metrics(id)?.memory_limit, Some(33_554_432));
    stasis.ctr_remove(id)
}

/// The test machines' version 2 has no controllers; every cgroup's own files can be set anyway.
fn settings_of_version_2_are_changed(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "settings";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let path = stasis
        .cgroup(Cgroups::V2, "", id)
        .join("cgroup.max.descendants");
    assert_eq!(std::fs::read_to_string(&path)?, "max\n");
    let resources = json!({ "unified": { "cgroup.max.descendants": "77" } });
    client.update(id, &Resources(resources))?;
    assert_eq!(std::fs::read_to_string(&path)?, "77\n");
    stasis.ctr_remove(id)
}

fn want_of_memory_is_told(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let mut events = client.events()?;
    let id = "oom";
    // tail keeps a line until it ends, and this one never does.
    let command = ["sh", "-c", "tail -n 1 /dev/zero; echo survived"];
    stasis.start_container(client, id, &["--memory-limit", "16777216"], &command)?;
    let found = events.until(id, "oom")?;
    assert_eq!(found.iter().filter(|event| event.kind == "oom").count(), 1);
    client.wait(id, INIT)?;
    stasis.ctr_remove(id)?;

    let id = "oom-first";
    let command = ["tail", "-n", "1", "/dev/zero"];
    stasis.start_container(client, id, &["--memory-limit", "16777216"], &command)?;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    // Clients read the reason of a container's end when they see its exit.
    let found = events.until(id, "exit oom-first 137")?;
    assert!(found.iter().any(|event| event.kind == "oom"), "{found:?}");
    stasis.ctr_remove(id)?;
    stasis.nothing_left_of(&["oom", id, "limits", "metrics", "listed"])
}
