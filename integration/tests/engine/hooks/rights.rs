//! A hook has the rights of a process of the container, and no more.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{AFTER, BEFORE, Job};

/// Prints the kernel's records of a process's rights.
const OF_INIT: &str = "cat /proc/1/status /proc/1/cgroup /proc/1/limits";
const SCRIPT: &str = "echo before >>/hooks; \
    (cat /proc/self/status /proc/self/cgroup /proc/self/limits; echo \"TAG=$STASIS_TAG\"; \
    ls -l /proc/$$/fd) >/rights";
const LINES: [&str; 10] = [
    "Uid:",
    "Gid:",
    "CapInh:",
    "CapPrm:",
    "CapEff:",
    "CapBnd:",
    "NoNewPrivs:",
    "Seccomp:",
    "Max open files",
    "Max processes",
];

pub(super) fn of_a_hook(job: &mut Job<'_>) -> Result<()> {
    job.annotate(&[(BEFORE, SCRIPT), (AFTER, "echo after >>/hooks")])?;
    let init = job.counter.exec(OF_INIT)?;
    job.counter.checkpoint("rights", &["--leave-running"])?;
    job.were_run(&["before", "after"])?;
    let hook = fs::read_to_string(job.in_container("/rights"))?;
    for begin in LINES {
        ensure!(
            line(&hook, begin) == line(&init, begin),
            "{begin} {hook}\n{init}"
        );
    }
    for group in init.lines().filter(|line| is_known_group(job, line)) {
        let is_in_it = hook.lines().any(|line| line == group);
        ensure!(is_in_it, "{group} is not in {hook}");
    }
    ensure!(hook.contains("TAG=counter"), "{hook}");
    // The hook has no file of ours open.
    ensure!(
        !hook.contains("/run/") && !hook.contains("/images"),
        "{hook}"
    );
    another_user(job)
}

/// The hook is not root if the container's first process is not.
fn another_user(job: &Job<'_>) -> Result<()> {
    let before = job.counter.spec()?["process"]["user"].clone();
    job.annotate(&[(BEFORE, "id -u >/tmp/user"), (AFTER, "")])?;
    job.counter.exec("mkdir -p /tmp && chmod 1777 /tmp")?;
    let user = json!({"uid": 1234, "gid": 1234});
    job.counter.change(|spec| spec["process"]["user"] = user)?;
    job.counter.checkpoint("user", &["--leave-running"])?;
    job.counter
        .change(|spec| spec["process"]["user"] = before)?;
    let user = job.counter.exec("cat /tmp/user")?;
    ensure!(user == "1234", "{user}");
    Ok(())
}

/// Whether the low-level runtime joins this cgroup. In a test host with version 2 alone, a
/// container that crun has restored is in cgroups of the machine's version 1 as well, and crun's
/// `exec` joins version 2 alone.
fn is_known_group(job: &Job<'_>, line: &str) -> bool {
    let is_version_2 = line.starts_with("0::/");
    is_version_2 || (line.contains(":/") && job.stasis.low_level != "crun")
}

fn line<'t>(text: &'t str, begin: &str) -> Option<&'t str> {
    text.lines().find(|line| line.starts_with(begin))
}
