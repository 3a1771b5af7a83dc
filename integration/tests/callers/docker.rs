//! Docker: checkpoints and restores with stasis as a configured runtime, in all four test hosts.

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::image_files;
use stasis_integration::container::saved_at_stop::{IMAGES, SETTINGS, options};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

mod through_the_runtime {
    stasis_integration::on_hosts!(super::through_the_runtime: trixie_hybrid, trixie_v2, sid_hybrid, sid_v2);
}

mod through_the_shim {
    stasis_integration::on_hosts!(super::through_the_shim: trixie, sid_v2);
}

fn through_the_runtime(kind: HostKind) -> Result<()> {
    all_paths(&StasisHost::of(kind)?)
}

fn through_the_shim(kind: HostKind) -> Result<()> {
    all_paths(&StasisHost::of(kind)?.through_the_shim()?)
}

fn all_paths(stasis: &StasisHost) -> Result<()> {
    let _docker = stasis.docker()?;
    try_all(stasis).with_context(|| stasis.account("docker"))
}

fn try_all(stasis: &StasisHost) -> Result<()> {
    counter_is_checkpointed_and_restored(stasis)?;
    memory_goes_on_when_left_running(stasis)?;
    stopped_container_goes_on_at_its_next_start(stasis)?;
    tree_counts_on(stasis)?;
    terminal_container(stasis)?;
    plain_container_gets_a_plain_image(stasis)?;
    failed_checkpoint_changes_nothing(stasis)
}

/// The container ends with the checkpoint; the restored one counts on, and so does a second one
/// restored from the same checkpoint.
fn counter_is_checkpointed_and_restored(stasis: &StasisHost) -> Result<()> {
    stasis.docker_run("counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    assert_ne!(stasis.gpu_descriptors()?, 0);
    stasis.check("docker", "counter")?;
    stasis.docker_checkpoint(&[], "counter", "one")?;
    stasis.docker_wait_for("counter", "exited")?;
    assert_eq!(stasis.gpu_descriptors()?, 0);
    assert!(stasis.is_silent(10000)?);
    let manifest = manifest(stasis, "counter", "one")?;
    assert_eq!(manifest["processes"][0]["pid"], 1);
    assert_eq!(manifest["gpus"].as_array().map(Vec::len), Some(1));
    for _ in 0..2 {
        stasis.docker_restore("counter", "one")?;
        assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
        assert_eq!(stasis.docker_status("counter")?, "running");
        let logged = stasis.last_operation()?;
        assert_eq!(logged["operation"], "restore", "{logged}");
        assert_eq!(logged.get("error"), None, "{logged}");
        stasis.run(&["docker", "kill", "counter"])?;
        stasis.docker_wait_for("counter", "exited")?;
    }
    stasis.docker_remove("counter")
}

fn memory_goes_on_when_left_running(stasis: &StasisHost) -> Result<()> {
    stasis.docker_run("memory", &[], &["/bin/memcheck", "64", "10001"])?;
    assert_eq!(stasis.ask_until_up(10001)?, "ok 0");
    stasis.docker_checkpoint(&["--leave-running"], "memory", "one")?;
    assert_eq!(stasis.docker_status("memory")?, "running");
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 1"));
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 2"));
    let manifest = manifest(stasis, "memory", "one")?;
    let bytes = manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
    assert!(bytes > Some(64 << 20), "{bytes:?}");
    stasis.run(&["docker", "kill", "memory"])?;
    stasis.docker_wait_for("memory", "exited")?;
    stasis.docker_restore("memory", "one")?;
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 1"));
    stasis.docker_remove("memory")
}

/// `docker stop` finds its end before the grace period is over.
fn stopped_container_goes_on_at_its_next_start(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, SETTINGS)?;
    let options = options();
    let options = options.each_ref().map(String::as_str);
    stasis.docker_run("stopped", &options, &["/bin/counter", "10005"])?;
    for (answer, kept) in [("101", 1), ("102", 2), ("103", 2)] {
        assert_eq!(stasis.ask_until_up(10005)?, answer);
        stasis.run(&["docker", "stop", "-t", "600", "stopped"])?;
        stasis.docker_wait_for("stopped", "exited")?;
        stasis.run(&["docker", "start", "stopped"])?;
        stasis.was_saved_at_stop(IMAGES, kept)?;
    }
    stasis.run(&["docker", "kill", "stopped"])?;
    stasis.docker_wait_for("stopped", "exited")?;
    stasis.docker_remove("stopped")?;
    stasis.set(&stasis.low_level, "")
}

fn tree_counts_on(stasis: &StasisHost) -> Result<()> {
    stasis.docker_run("tree", &[], &["/bin/tree", "10002"])?;
    assert_eq!(stasis.ask_until_up(10002)?, "101 201 301 401 501 601 701 1");
    stasis.docker_checkpoint(&["--leave-running"], "tree", "one")?;
    let second = Some("102 202 302 402 502 602 702 2");
    assert_eq!(stasis.ask(10002)?.as_deref(), second);
    let processes = manifest(stasis, "tree", "one")?["processes"]
        .as_array()
        .map(Vec::len);
    assert_eq!(processes, Some(3));
    stasis.run(&["docker", "kill", "tree"])?;
    stasis.docker_wait_for("tree", "exited")?;
    stasis.docker_restore("tree", "one")?;
    assert_eq!(stasis.ask(10002)?.as_deref(), second);
    stasis.docker_remove("tree")
}

fn terminal_container(stasis: &StasisHost) -> Result<()> {
    stasis.docker_run("terminal", &["-t"], &["/bin/counter", "10003"])?;
    assert_eq!(stasis.ask_until_up(10003)?, "101");
    stasis.docker_checkpoint(&["--leave-running"], "terminal", "one")?;
    assert_eq!(stasis.ask(10003)?.as_deref(), Some("102"));
    stasis.run(&["docker", "kill", "terminal"])?;
    stasis.docker_wait_for("terminal", "exited")?;
    stasis.docker_restore("terminal", "one")?;
    assert_eq!(stasis.ask(10003)?.as_deref(), Some("102"));
    stasis.docker_remove("terminal")
}

fn plain_container_gets_a_plain_image(stasis: &StasisHost) -> Result<()> {
    stasis.docker_run("plain", &[], &["/bin/pause"])?;
    stasis.docker_checkpoint(&[], "plain", "one")?;
    stasis.docker_wait_for("plain", "exited")?;
    let directory = image_directory(stasis, "plain", "one")?;
    assert!(stasis.path(format!("{directory}/inventory.img")).exists());
    assert!(!stasis.path(format!("{directory}/stasis.json")).exists());
    stasis.docker_restore("plain", "one")?;
    assert_eq!(stasis.docker_status("plain")?, "running");
    stasis.docker_remove("plain")
}

/// The driver refuses; Docker shows why, the container goes on, and the next checkpoint succeeds.
fn failed_checkpoint_changes_nothing(stasis: &StasisHost) -> Result<()> {
    stasis.docker_run("failed", &[], &["/bin/counter", "10004"])?;
    assert_eq!(stasis.ask_until_up(10004)?, "101");
    stasis.inject("checkpoint failed error:801 1")?;
    let message = stasis.fails(&["docker", "checkpoint", "create", "failed", "one"])?;
    assert_contains(&message, &["CUDA_ERROR_NOT_SUPPORTED (801)"]);
    assert_eq!(stasis.docker_status("failed")?, "running");
    assert_eq!(stasis.ask(10004)?.as_deref(), Some("102"));
    stasis.docker_checkpoint(&[], "failed", "two")?;
    stasis.docker_wait_for("failed", "exited")?;
    stasis.docker_restore("failed", "two")?;
    assert_eq!(stasis.ask(10004)?.as_deref(), Some("103"));
    stasis.docker_remove("failed")
}

/// Returns the directory with CRIU's images of one of Docker's checkpoints.
fn image_directory(stasis: &StasisHost, name: &str, checkpoint: &str) -> Result<String> {
    let id = stasis.run_for_text(&["docker", "inspect", "--format", "{{.Id}}", name])?;
    Ok(format!(
        "/var/lib/docker/containers/{id}/checkpoints/{checkpoint}"
    ))
}

fn manifest(stasis: &StasisHost, name: &str, checkpoint: &str) -> Result<serde_json::Value> {
    let directory = image_directory(stasis, name, checkpoint)?;
    image_files::manifest(&stasis.path(directory))
}
