//! Docker: checkpoints and restores with stasis as a configured runtime, in all four test hosts.

use anyhow::{Context, Result};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

/// How Docker comes to stasis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Through {
    /// A runtime in its configuration.
    Runtime,
    /// Our shim in the place of containerd's.
    Shim,
}

#[test]
fn trixie_hybrid() -> Result<()> {
    all_paths(Suite::Trixie, Cgroups::Hybrid, Through::Runtime)
}

#[test]
fn trixie_v2() -> Result<()> {
    all_paths(Suite::Trixie, Cgroups::V2, Through::Runtime)
}

#[test]
fn sid_hybrid() -> Result<()> {
    all_paths(Suite::Sid, Cgroups::Hybrid, Through::Runtime)
}

#[test]
fn sid_v2() -> Result<()> {
    all_paths(Suite::Sid, Cgroups::V2, Through::Runtime)
}

#[test]
fn shim_on_trixie() -> Result<()> {
    all_paths(Suite::Trixie, Cgroups::oldest()?, Through::Shim)
}

#[test]
fn shim_on_sid() -> Result<()> {
    all_paths(Suite::Sid, Cgroups::V2, Through::Shim)
}

fn all_paths(suite: Suite, cgroups: Cgroups, through: Through) -> Result<()> {
    if !cgroups.available()? {
        eprintln!("not run: this machine has no {cgroups:?} cgroups");
        return Ok(());
    }
    let lab = Lab::start(suite, cgroups, "runc")?;
    let lab = match through {
        Through::Runtime => lab,
        Through::Shim => lab.through_the_shim()?,
    };
    let _docker = lab.docker()?;
    try_all(&lab).with_context(|| lab.account("docker"))
}

fn try_all(lab: &Lab) -> Result<()> {
    counter_is_checkpointed_and_restored(lab)?;
    memory_goes_on_when_left_running(lab)?;
    tree_counts_on(lab)?;
    terminal_container(lab)?;
    plain_container_gets_a_plain_image(lab)?;
    failed_checkpoint_changes_nothing(lab)
}

/// The container ends with the checkpoint; the restored one counts on, and so does a second one
/// restored from the same checkpoint.
fn counter_is_checkpointed_and_restored(lab: &Lab) -> Result<()> {
    lab.docker_run("counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    assert_ne!(lab.gpu_descriptors()?, 0);
    lab.check("docker", "counter")?;
    lab.docker_checkpoint(&[], "counter", "one")?;
    lab.docker_wait_for("counter", "exited")?;
    assert_eq!(lab.gpu_descriptors()?, 0);
    assert_eq!(lab.ask(10000)?, None);
    let manifest = manifest(lab, "counter", "one")?;
    assert_eq!(manifest["processes"][0]["pid"], 1);
    assert_eq!(manifest["gpus"].as_array().map(Vec::len), Some(1));
    for _ in 0..2 {
        lab.docker_restore("counter", "one")?;
        assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
        assert_eq!(lab.docker_status("counter")?, "running");
        let logged = lab.last_operation()?;
        assert_eq!(logged["operation"], "restore", "{logged}");
        assert_eq!(logged.get("error"), None, "{logged}");
        lab.host.run(&["docker", "kill", "counter"])?;
        lab.docker_wait_for("counter", "exited")?;
    }
    lab.docker_remove("counter")
}

fn memory_goes_on_when_left_running(lab: &Lab) -> Result<()> {
    lab.docker_run("memory", &[], &["/bin/memcheck", "64", "10001"])?;
    assert_eq!(lab.ask_until_up(10001)?, "ok 0");
    lab.docker_checkpoint(&["--leave-running"], "memory", "one")?;
    assert_eq!(lab.docker_status("memory")?, "running");
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 1"));
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 2"));
    let manifest = manifest(lab, "memory", "one")?;
    let bytes = manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
    assert!(bytes > Some(64 << 20), "{bytes:?}");
    lab.host.run(&["docker", "kill", "memory"])?;
    lab.docker_wait_for("memory", "exited")?;
    lab.docker_restore("memory", "one")?;
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 1"));
    lab.docker_remove("memory")
}

fn tree_counts_on(lab: &Lab) -> Result<()> {
    lab.docker_run("tree", &[], &["/bin/tree", "10002"])?;
    assert_eq!(lab.ask_until_up(10002)?, "101 201 301 401 501 601 701 1");
    lab.docker_checkpoint(&["--leave-running"], "tree", "one")?;
    let second = Some("102 202 302 402 502 602 702 2");
    assert_eq!(lab.ask(10002)?.as_deref(), second);
    let processes = manifest(lab, "tree", "one")?["processes"]
        .as_array()
        .map(Vec::len);
    assert_eq!(processes, Some(3));
    lab.host.run(&["docker", "kill", "tree"])?;
    lab.docker_wait_for("tree", "exited")?;
    lab.docker_restore("tree", "one")?;
    assert_eq!(lab.ask(10002)?.as_deref(), second);
    lab.docker_remove("tree")
}

fn terminal_container(lab: &Lab) -> Result<()> {
    lab.docker_run("terminal", &["-t"], &["/bin/counter", "10003"])?;
    assert_eq!(lab.ask_until_up(10003)?, "101");
    lab.docker_checkpoint(&["--leave-running"], "terminal", "one")?;
    assert_eq!(lab.ask(10003)?.as_deref(), Some("102"));
    lab.host.run(&["docker", "kill", "terminal"])?;
    lab.docker_wait_for("terminal", "exited")?;
    lab.docker_restore("terminal", "one")?;
    assert_eq!(lab.ask(10003)?.as_deref(), Some("102"));
    lab.docker_remove("terminal")
}

fn plain_container_gets_a_plain_image(lab: &Lab) -> Result<()> {
    lab.docker_run("plain", &[], &["/bin/pause"])?;
    lab.docker_checkpoint(&[], "plain", "one")?;
    lab.docker_wait_for("plain", "exited")?;
    let directory = image_directory(lab, "plain", "one")?;
    assert!(lab.host.path(format!("{directory}/inventory.img")).exists());
    assert!(!lab.host.path(format!("{directory}/stasis.json")).exists());
    lab.docker_restore("plain", "one")?;
    assert_eq!(lab.docker_status("plain")?, "running");
    lab.docker_remove("plain")
}

/// The driver refuses; Docker shows why, the container goes on, and the next checkpoint succeeds.
fn failed_checkpoint_changes_nothing(lab: &Lab) -> Result<()> {
    lab.docker_run("failed", &[], &["/bin/counter", "10004"])?;
    assert_eq!(lab.ask_until_up(10004)?, "101");
    lab.order("checkpoint failed error:801 1")?;
    let said = lab.fails(&["docker", "checkpoint", "create", "failed", "one"])?;
    assert!(said.contains("CUDA_ERROR_NOT_SUPPORTED (801)"), "{said}");
    assert_eq!(lab.docker_status("failed")?, "running");
    assert_eq!(lab.ask(10004)?.as_deref(), Some("102"));
    lab.docker_checkpoint(&[], "failed", "two")?;
    lab.docker_wait_for("failed", "exited")?;
    lab.docker_restore("failed", "two")?;
    assert_eq!(lab.ask(10004)?.as_deref(), Some("103"));
    lab.docker_remove("failed")
}

/// Where Docker has CRIU's images of a checkpoint.
fn image_directory(lab: &Lab, name: &str, checkpoint: &str) -> Result<String> {
    let id = lab
        .host
        .run_for_text(&["docker", "inspect", "--format", "{{.Id}}", name])?;
    Ok(format!(
        "/var/lib/docker/containers/{id}/checkpoints/{checkpoint}"
    ))
}

fn manifest(lab: &Lab, name: &str, checkpoint: &str) -> Result<serde_json::Value> {
    let directory = image_directory(lab, name, checkpoint)?;
    let text = std::fs::read_to_string(lab.host.path(format!("{directory}/stasis.json")))?;
    Ok(serde_json::from_str(&text)?)
}
