//! Three counters in one container, the means to stop one of them, and the keeper's work for it.

use std::path::PathBuf;
use std::process::Child;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::StasisHost;

/// The numbers that the counters have reached.
#[derive(Debug)]
pub(crate) struct Counts(pub(crate) [u32; 3]);

impl Counts {
    pub(crate) fn all_go_on(&mut self, stasis: &StasisHost) -> Result<()> {
        self.go_on(stasis, &[0, 1, 2])
    }

    /// Asks some of the counters once; each has to be where it was.
    pub(crate) fn go_on(&mut self, stasis: &StasisHost, which: &[u16]) -> Result<()> {
        for index in which {
            let answer = stasis.ask_until_up(10000 + index)?;
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

pub(crate) fn record(stasis: &StasisHost) -> PathBuf {
    stasis.record(ROOT, "three")
}

pub(crate) fn until_nothing_waits(stasis: &StasisHost) -> Result<()> {
    wait_until_clear(|| {
        let (left, recorded) = (stasis.keepers(), record(stasis).exists());
        Ok((recorded || !left.is_empty()).then(|| format!("keepers {left:?}, record {recorded}")))
    })
}

/// Returns the pid of the counter b in the host.
pub(crate) fn second(stasis: &StasisHost) -> Result<String> {
    stasis.run_for_text(&["pgrep", "-o", "-f", "^/bin/counter 10001"])
}

pub(crate) fn signal(stasis: &StasisHost, name: &str) -> Result<()> {
    stasis.run(&["kill", name, &second(stasis)?]).map(drop)
}

/// Returns the message of a checkpoint that has to fail and leave b, stopped, to its keeper.
pub(crate) fn leaves_one_behind(stasis: &StasisHost, child: Child) -> Result<String> {
    let message = says_that_one_is_left(stasis, child)?;
    let keepers = stasis.keepers();
    let is_named = |pid| message.contains(&format!("stasis process {pid} tries again"));
    ensure!(keepers.lines().any(is_named), "{keepers}: {message}");
    ensure!(record(stasis).exists(), "{message}");
    Ok(message)
}

/// Does the same if b may answer at any time.
pub(crate) fn says_that_one_is_left(stasis: &StasisHost, child: Child) -> Result<String> {
    let output = child.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let parts = [
        "the other processes of the container are as before, with their GPU",
        &format!("of process {} (counter)", second(stasis)?),
        "tries again until all processes of the container have their GPU",
    ];
    assert_contains(&stderr, &parts);
    Ok(stderr)
}

/// Makes /held/three the container's cgroup.
pub(crate) fn put_below_a_cgroup(stasis: &StasisHost, three: &Bundle<'_>) -> Result<()> {
    let path = stasis.path(format!("{}/config.json", three.directory()));
    let mut spec: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    spec["linux"]["cgroupsPath"] = json!("/held/three");
    Ok(std::fs::write(path, spec.to_string())?)
}

/// Freezes or thaws the cgroup above the container's.
pub(crate) fn set_above(stasis: &StasisHost, [v1, v2]: [&str; 2]) -> Result<()> {
    let script = format!(
        "cd /sys/fs/cgroup/freezer/held 2>/dev/null && echo {v1} >freezer.state || \
         echo {v2} >/sys/fs/cgroup/held/cgroup.freeze"
    );
    stasis.run(&["bash", "-c", &script]).map(drop)
}

pub(crate) const FROZEN: [&str; 2] = ["FROZEN", "1"];
pub(crate) const THAWED: [&str; 2] = ["THAWED", "0"];
