//! The test hosts themselves: what the other tests stand on must stand, with stock programs only,
//! and leave nothing.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that goes wrong"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use stasis_integration::host::image::Image;
use stasis_integration::host::{Cgroups, Host, HostKind, Suite};
use stasis_integration::{needs, on_hosts};

const IMAGE: &str = Image::DEFAULT_NAME;
const ARCHIVE: &str = "/root/image.tar";

on_hosts!(host_serves: trixie_hybrid, trixie_v2, sid_hybrid, sid_v2);

#[test]
fn a_hybrid_host_needs_version_1() -> Result<()> {
    needs!(OnlyCgroupsV2);
    let error = Host::start(Suite::Trixie, Cgroups::Hybrid).unwrap_err();
    assert!(error.to_string().contains("version 1"), "{error}");
    Ok(())
}

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
    assert!(
        said.contains("was ended after STASIS_HOST_LIMIT_S"),
        "{said}"
    );
    // What has been started by then depends on the machine.
    assert!(said.contains("(bash) S "), "{said}");
    assert!(said.contains(": bash -c #!/bin/bash"), "{said}");
}

#[test]
fn a_host_outlives_no_killed_test() {
    // What it leaves comes here, and not to the machine's first process.
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

/// The machine's first process may let it be a zombie for a minute, and a host with one seems to be
/// at work, and cannot end.
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

fn host_serves(kind: HostKind) -> Result<()> {
    let host = Host::start(kind.suite, kind.cgroups)?;
    let (init, name) = (host.init(), host.name().to_owned());
    Image::new(IMAGE)
        .unwrap()
        .write(&host.path(ARCHIVE))
        .unwrap();

    host.run(&["criu", "check"]).unwrap();
    containerd_checkpoints_and_restores(&host);
    podman_checkpoints_and_restores(&host);
    docker_runs(&host);

    drop(host);
    assert!(
        !Path::new(&format!("/proc/{init}")).exists(),
        "the host's first process lives on"
    );
    assert_eq!(cgroups_named(&name), Vec::<PathBuf>::new());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("/stasis/hosts/"), "{mounts}");
    Ok(())
}

fn containerd_checkpoints_and_restores(host: &Host) {
    let _containerd = host.containerd().unwrap();
    host.run(&["ctr", "image", "import", ARCHIVE]).unwrap();
    host.run(&[
        "ctr",
        "run",
        "-d",
        "--net-host",
        "--cpu-shares",
        "0",
        IMAGE,
        "one",
        "/bin/pause",
    ])
    .unwrap();
    let before = task_pid(host, "one");
    host.run(&[
        "ctr",
        "container",
        "checkpoint",
        "--rw",
        "--image",
        "--task",
        "one",
        "checkpoint/one:1",
    ])
    .unwrap();
    assert_eq!(
        task_pid(host, "one"),
        before,
        "a checkpoint that leaves the task running replaced it"
    );

    host.run(&["ctr", "task", "kill", "-s", "KILL", "one"])
        .unwrap();
    wait_until("the task is deleted", || {
        host.run(&["ctr", "task", "rm", "one"]).is_ok()
    });
    host.run(&["ctr", "container", "rm", "one"]).unwrap();
    host.run(&[
        "ctr",
        "container",
        "restore",
        "--rw",
        "--live",
        "one",
        "checkpoint/one:1",
    ])
    .unwrap();
    let after = task_pid(host, "one");
    assert_ne!(after, before);
    assert_eq!(
        fs::read_to_string(host.path(format!("/proc/{after}/comm"))).unwrap(),
        "pause\n"
    );
    // It stays paused, so that the host has to end with a frozen process in it.
    host.run(&["ctr", "task", "pause", "one"]).unwrap();
}

fn podman_checkpoints_and_restores(host: &Host) {
    host.run(&["podman", "load", "-i", ARCHIVE]).unwrap();
    for runtime in ["runc", "crun"] {
        let podman = |arguments: &[&str]| {
            host.run(&[&["podman", "--runtime", runtime], arguments].concat())
                .unwrap()
        };
        podman(&[
            "run",
            "-d",
            "--name",
            runtime,
            "--network",
            "host",
            IMAGE,
            "/bin/pause",
        ]);
        podman(&["container", "checkpoint", runtime]);
        let state = [
            "podman",
            "inspect",
            "--format",
            "{{.State.Status}}",
            runtime,
        ];
        assert_eq!(host.run_for_text(&state).unwrap(), "exited");
        podman(&["container", "restore", runtime]);
        assert_eq!(host.run_for_text(&state).unwrap(), "running");
    }
}

fn docker_runs(host: &Host) {
    let _docker = host.docker().unwrap();
    host.run(&["docker", "load", "-i", ARCHIVE]).unwrap();
    let stdout = host.run_for_text(&[
        "docker",
        "run",
        "--rm",
        "--network",
        "host",
        IMAGE,
        "/bin/echo",
        "hello",
    ]);
    assert_eq!(stdout.unwrap(), "hello");
}

/// The pid, inside the host, of a task that runs.
fn task_pid(host: &Host, id: &str) -> String {
    let tasks = host.run_for_text(&["ctr", "task", "ls"]).unwrap();
    let task = tasks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words[0] == id);
    match task.as_deref() {
        Some([_, pid, "RUNNING"]) => (*pid).to_owned(),
        other => panic!("task {id} does not run: {other:?}"),
    }
}

fn cgroups_named(name: &str) -> Vec<PathBuf> {
    let output = Command::new("find")
        .args(["/sys/fs/cgroup", "-type", "d", "-name", name])
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(PathBuf::from)
        .collect()
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

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "still waiting until {what}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
