//! Three counters in one container, what stops one of them, and what has been left for it.

use std::path::PathBuf;
use std::process::Child;

use anyhow::{Result, ensure};
use nix::unistd::Pid;
use serde_json::{Value, json};
use stasis_integration::bundle::Bundle;
use stasis_integration::deadline::until_none;
use stasis_integration::lab::{FAULTS, Lab};

/// What the counters have counted to.
#[derive(Debug)]
pub(crate) struct Counts(pub(crate) [u32; 3]);

impl Counts {
    pub(crate) fn all_go_on(&mut self, lab: &Lab) -> Result<()> {
        self.go_on(lab, &[0, 1, 2])
    }

    /// Lets some count once; each has to be where it was.
    pub(crate) fn go_on(&mut self, lab: &Lab, which: &[u16]) -> Result<()> {
        for index in which {
            let answer = lab.ask_until_up(10000 + index)?;
            let count = &mut self.0[usize::from(*index)];
            *count += 1;
            ensure!(
                answer == count.to_string(),
                "{index}: {answer}, not {count}"
            );
        }
        Ok(())
    }
}

pub(crate) fn record(lab: &Lab) -> PathBuf {
    lab.host.path("/run/stasis/containers/%run%bundles/three")
}

pub(crate) fn guardians(lab: &Lab) -> String {
    let found = lab.host.run_for_text(&["pgrep", "-x", "stasis-guardian"]);
    found.unwrap_or_default()
}

pub(crate) fn until_nothing_waits(lab: &Lab) -> Result<()> {
    until_none(|| {
        let (left, recorded) = (guardians(lab), record(lab).exists());
        Ok(
            (recorded || !left.is_empty())
                .then(|| format!("guardians {left:?}, record {recorded}")),
        )
    })
}

/// Waits until the one order, which is for one call, has been taken.
pub(crate) fn until_taken(lab: &Lab) -> Result<()> {
    until_none(|| {
        let orders = std::fs::read_to_string(lab.host.path(FAULTS))?;
        Ok((!orders.contains(" 0\n")).then(|| format!("still ordered: {orders}")))
    })
}

/// The pid of the counter b in the host.
pub(crate) fn second(lab: &Lab) -> Result<String> {
    lab.host
        .run_for_text(&["pgrep", "-f", "^/bin/counter 10001"])
}

/// The pid, as this process sees it, of a process of the host that is in a container.
pub(crate) fn outside(lab: &Lab, inside: &str) -> Result<Pid> {
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let read = |file| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let status = read("status");
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let mut pids = pids.unwrap_or_default().split_whitespace();
        let outermost = pids.next().and_then(|pid| pid.parse().ok());
        // Other hosts have processes of the same pid.
        if let (Some(pid), true) = (outermost, pids.next() == Some(inside))
            && read("cgroup").contains(lab.host.name())
        {
            return Ok(Pid::from_raw(pid));
        }
    }
    anyhow::bail!("no process {inside} in the host")
}

pub(crate) fn signal(lab: &Lab, name: &str) -> Result<()> {
    lab.host.run(&["kill", name, &second(lab)?]).map(drop)
}

/// The message of a checkpoint that has to fail and leave b to a guardian.
pub(crate) fn leaves_one_behind(lab: &Lab, child: Child) -> Result<String> {
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let guardian = guardians(lab);
    for part in [
        "the other processes of the container are as before, with their GPU",
        &format!("of process {} (counter)", second(lab)?),
        &format!("stasis process {guardian} waits"),
    ] {
        ensure!(said.contains(part), "{part:?} is missing in: {said}");
    }
    ensure!(!guardian.is_empty() && record(lab).exists(), "{said}");
    Ok(said)
}

/// The container's cgroup becomes /held/three.
pub(crate) fn put_below_a_cgroup(lab: &Lab, three: &Bundle<'_>) -> Result<()> {
    let path = lab.host.path(format!("{}/config.json", three.directory()));
    let mut spec: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    spec["linux"]["cgroupsPath"] = json!("/held/three");
    Ok(std::fs::write(path, spec.to_string())?)
}

/// Freezes or thaws the cgroup above the container's.
pub(crate) fn set_above(lab: &Lab, [v1, v2]: [&str; 2]) -> Result<()> {
    let script = format!(
        "cd /sys/fs/cgroup/freezer/held 2>/dev/null && echo {v1} >freezer.state || \
         echo {v2} >/sys/fs/cgroup/held/cgroup.freeze"
    );
    lab.host.run(&["bash", "-c", &script]).map(drop)
}

pub(crate) const FROZEN: [&str; 2] = ["FROZEN", "1"];
pub(crate) const THAWED: [&str; 2] = ["THAWED", "0"];
