//! The test hosts themselves, with stock programs only: the basis of the other tests has to be
//! sound, and to leave nothing behind.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that goes wrong"
)]

mod ends;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
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

/// Returns the pid, inside the host, of a running task.
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
