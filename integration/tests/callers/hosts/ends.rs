//! The ends of hosts, and the fate of their processes and of the test's processes beside them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::{Cgroups, Host, Suite};

use super::{cgroups_named, wait_until};

/// The kernel sends SIGHUP to a process group with a stopped member when its last link to another
/// group of its session ends.
#[test]
fn what_ends_and_what_is_stopped_in_a_host_hangs_up_no_test() {
    // The host's init adopts the first. All are of the group of this session's leader.
    let script = "
        adopted=$(bash -c '(until [ -e /run/go ]; do sleep 0.1; done) >/dev/null & echo $!')
        sleep 60 &
        kill -STOP $!
        touch /run/go
        while kill -0 $adopted 2>/dev/null; do sleep 0.1; done
        kill -KILL $!
        echo alive";
    let test_host = env!("CARGO_BIN_EXE_test-host");
    let output = Command::new("setsid")
        .args(["--wait", test_host, "trixie", "v2", "bash", "-c", script])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alive\n");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_test_that_hangs_ends_and_says_where() {
    let output = Command::new(env!("CARGO_BIN_EXE_test-host"))
        .args(["trixie", "v2", "flock", "/run/lock", "sleep", "inf"])
        .env("STASIS_HOST_LIMIT_S", "5")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert_contains(&said, &["was ended after STASIS_HOST_LIMIT_S"]);
    // The set of processes that have been started by then depends on the machine.
    assert_contains(&said, &["(bash) S ", ": bash -c #!/bin/bash"]);
}

#[test]
fn a_host_outlives_no_killed_test() {
    // Orphans of the test come to this process, and not to the machine's first one.
    prctl::set_child_subreaper(true).unwrap();
    let mut test = Command::new(env!("CARGO_BIN_EXE_test-host"))
        .args([
            "trixie",
            "v2",
            "bash",
            "-c",
            "echo running; exec tail -f /dev/null",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(test.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "running\n");
    let supervisor = children_of(test.id())
        .into_iter()
        .find(|pid| is_supervisor(*pid))
        .unwrap();
    let name = format!("stasis-host-{supervisor}");
    assert_ne!(
        cgroups_named(&name),
        Vec::<PathBuf>::new(),
        "the host had no cgroup of its own"
    );

    test.kill().unwrap();
    test.wait().unwrap();
    let supervisor = Pid::from_raw(i32::try_from(supervisor).unwrap());
    wait_until("the supervisor has ended", || {
        let waited = waitpid(supervisor, Some(WaitPidFlag::WNOHANG));
        waited.unwrap() != WaitStatus::StillAlive
    });
    assert_eq!(cgroups_named(&name), Vec::<PathBuf>::new());
}

/// The machine's first process may leave an orphan a zombie for a minute; a host with a zombie
/// looks busy, and cannot end.
#[test]
fn what_loses_its_parent_outside_of_its_host_comes_to_the_test() -> Result<()> {
    let host = Host::start(Suite::Trixie, Cgroups::V2)?;
    let mut sleep = host.command("sleep");
    let mut nsenter = sleep.arg("inf").spawn()?;
    wait_until("sleep runs in the host", || {
        children_of(nsenter.id()).into_iter().any(is_sleep)
    });
    let orphan = children_of(nsenter.id())[0];
    nsenter.kill()?;
    nsenter.wait()?;
    assert!(children_of(std::process::id()).contains(&orphan));
    drop(host);
    assert!(!Path::new(&format!("/proc/{orphan}")).exists());
    Ok(())
}

fn children_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children
        .split_whitespace()
        .map(|child| child.parse().unwrap())
        .collect()
}

fn is_supervisor(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap()
        .contains("Runs one test host")
}

fn is_sleep(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| name == "sleep\n")
}
