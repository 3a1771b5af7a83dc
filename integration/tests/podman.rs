//! podman: checkpoints and restores with runc and with crun below stasis, each of them on both
//! kinds of cgroups.

use anyhow::{Context, Result};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

#[test]
fn runc_on_trixie_hybrid() -> Result<()> {
    all_paths(Suite::Trixie, Cgroups::Hybrid, "runc")
}

#[test]
fn crun_on_trixie_v2() -> Result<()> {
    all_paths(Suite::Trixie, Cgroups::V2, "crun")
}

#[test]
fn crun_on_sid_hybrid() -> Result<()> {
    all_paths(Suite::Sid, Cgroups::Hybrid, "crun")
}

#[test]
fn runc_on_sid_v2() -> Result<()> {
    all_paths(Suite::Sid, Cgroups::V2, "runc")
}

fn all_paths(suite: Suite, cgroups: Cgroups, low_level: &str) -> Result<()> {
    if !cgroups.available()? {
        eprintln!("not run: this machine has no {cgroups:?} cgroups");
        return Ok(());
    }
    let lab = Lab::start(suite, cgroups, low_level)?;
    lab.podman_load()?;
    try_all(&lab).with_context(|| lab.account("podman"))
}

fn try_all(lab: &Lab) -> Result<()> {
    counter_is_checkpointed_and_restored(lab)?;
    memory_comes_back_twice_from_kept_files(lab)?;
    counter_goes_on_when_left_running(lab)?;
    archive_is_imported_under_another_name(lab)?;
    established_connections_are_accepted(lab)?;
    tree_counts_on(lab)?;
    terminal_container(lab)?;
    plain_container_gets_a_plain_image(lab)?;
    failed_checkpoint_changes_nothing(lab)
}

/// After a checkpoint the container is gone from the GPU; the restored one counts on.
fn counter_is_checkpointed_and_restored(lab: &Lab) -> Result<()> {
    lab.podman_run("counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    assert_ne!(lab.gpu_descriptors()?, 0);
    lab.check("podman", "counter")?;
    lab.podman_container(&["checkpoint"], "counter")?;
    assert_eq!(lab.gpu_descriptors()?, 0);
    assert_eq!(lab.podman_status("counter")?, "exited");
    assert_eq!(lab.ask(10000)?, None);
    assert_succeeded(lab, "checkpoint")?;
    lab.podman_container(&["restore"], "counter")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    assert_succeeded(lab, "restore")?;
    assert_eq!(lab.podman_status("counter")?, "running");
    // What was restored can be checkpointed again.
    lab.podman_container(&["checkpoint"], "counter")?;
    lab.podman_container(&["restore"], "counter")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("103"));
    lab.podman_remove("counter")
}

/// `--keep` leaves the image directory in place, at the checkpoint and at the restore.
fn memory_comes_back_twice_from_kept_files(lab: &Lab) -> Result<()> {
    lab.podman_run("memory", &[], &["/bin/memcheck", "64", "10001"])?;
    assert_eq!(lab.ask_until_up(10001)?, "ok 0");
    lab.podman_container(&["checkpoint", "--keep"], "memory")?;
    let directory = image_directory(lab, "memory")?;
    let manifest = manifest(lab, &directory)?;
    assert_eq!(manifest["processes"][0]["pid"], 1);
    let bytes = manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
    assert!(bytes > Some(64 << 20), "{bytes:?}");
    for _ in 0..2 {
        lab.podman_container(&["restore", "--keep"], "memory")?;
        assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 1"));
        assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 2"));
        lab.podman(&["kill", "memory"])?;
        lab.podman(&["wait", "memory"])?;
    }
    lab.podman_remove("memory")
}

fn counter_goes_on_when_left_running(lab: &Lab) -> Result<()> {
    lab.podman_run("left", &[], &["/bin/counter", "10002"])?;
    assert_eq!(lab.ask_until_up(10002)?, "101");
    for answer in ["102", "103"] {
        lab.podman_container(&["checkpoint", "--leave-running", "--keep"], "left")?;
        assert_succeeded(lab, "checkpoint")?;
        assert_eq!(lab.podman_status("left")?, "running");
        assert_eq!(lab.ask(10002)?.as_deref(), Some(answer));
    }
    // The kept files hold the container as it was at the second checkpoint.
    lab.podman(&["kill", "left"])?;
    lab.podman(&["wait", "left"])?;
    lab.podman_container(&["restore"], "left")?;
    assert_eq!(lab.ask(10002)?.as_deref(), Some("103"));
    lab.podman_remove("left")
}

fn archive_is_imported_under_another_name(lab: &Lab) -> Result<()> {
    let archive = "/images/exported.tar";
    lab.podman_run("exported", &[], &["/bin/memcheck", "16", "10003"])?;
    assert_eq!(lab.ask_until_up(10003)?, "ok 0");
    lab.podman_container(
        &["checkpoint", "--compress", "none", "--export", archive],
        "exported",
    )?;
    lab.podman_remove("exported")?;
    let files = lab.host.run_for_text(&["tar", "-tf", archive])?;
    assert!(
        files.lines().any(|file| file == "checkpoint/stasis.json"),
        "{files}"
    );
    for name in ["imported", "again"] {
        lab.podman(&["container", "restore", "--import", archive, "--name", name])?;
        assert_eq!(lab.podman_status(name)?, "running");
        assert_eq!(lab.ask(10003)?.as_deref(), Some("ok 1"));
        lab.podman_remove(name)?;
    }
    Ok(())
}

/// The counter has no connection; podman passes the option to the runtime in either direction.
fn established_connections_are_accepted(lab: &Lab) -> Result<()> {
    lab.podman_run("tcp", &[], &["/bin/counter", "10004"])?;
    assert_eq!(lab.ask_until_up(10004)?, "101");
    lab.podman_container(&["checkpoint", "--tcp-established"], "tcp")?;
    lab.podman_container(&["restore", "--tcp-established"], "tcp")?;
    assert_eq!(lab.ask(10004)?.as_deref(), Some("102"));
    lab.podman_remove("tcp")
}

fn tree_counts_on(lab: &Lab) -> Result<()> {
    lab.podman_run("tree", &[], &["/bin/tree", "10005"])?;
    assert_eq!(lab.ask_until_up(10005)?, "101 201 301 401 501 601 701 1");
    lab.podman_container(&["checkpoint", "--keep"], "tree")?;
    let directory = image_directory(lab, "tree")?;
    let processes = manifest(lab, &directory)?["processes"]
        .as_array()
        .map(Vec::len);
    assert_eq!(processes, Some(3));
    lab.podman_container(&["restore"], "tree")?;
    assert_eq!(
        lab.ask(10005)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    lab.podman_remove("tree")
}

fn terminal_container(lab: &Lab) -> Result<()> {
    lab.podman_run("terminal", &["-t"], &["/bin/counter", "10006"])?;
    assert_eq!(lab.ask_until_up(10006)?, "101");
    lab.podman_container(&["checkpoint"], "terminal")?;
    lab.podman_container(&["restore"], "terminal")?;
    assert_eq!(lab.ask(10006)?.as_deref(), Some("102"));
    lab.podman_remove("terminal")
}

fn plain_container_gets_a_plain_image(lab: &Lab) -> Result<()> {
    lab.podman_run("plain", &[], &["/bin/pause"])?;
    lab.podman_container(&["checkpoint", "--keep"], "plain")?;
    let directory = image_directory(lab, "plain")?;
    assert!(lab.host.path(format!("{directory}/inventory.img")).exists());
    assert!(!lab.host.path(format!("{directory}/stasis.json")).exists());
    lab.podman_container(&["restore"], "plain")?;
    assert_eq!(lab.podman_status("plain")?, "running");
    lab.podman_remove("plain")
}

/// The driver refuses; podman shows why, the container goes on, and the next checkpoint succeeds.
fn failed_checkpoint_changes_nothing(lab: &Lab) -> Result<()> {
    lab.podman_run("failed", &[], &["/bin/counter", "10007"])?;
    assert_eq!(lab.ask_until_up(10007)?, "101");
    lab.order("checkpoint failed error:801 1")?;
    let said = lab.fails(&["podman", "container", "checkpoint", "failed"])?;
    assert!(said.contains("CUDA_ERROR_NOT_SUPPORTED (801)"), "{said}");
    assert_eq!(lab.podman_status("failed")?, "running");
    assert_eq!(lab.ask(10007)?.as_deref(), Some("102"));
    lab.podman_container(&["checkpoint"], "failed")?;
    lab.podman_container(&["restore"], "failed")?;
    assert_eq!(lab.ask(10007)?.as_deref(), Some("103"));
    lab.podman_remove("failed")
}

fn assert_succeeded(lab: &Lab, operation: &str) -> Result<()> {
    let logged = lab.last_operation()?;
    assert_eq!(logged["operation"], operation, "{logged}");
    assert_eq!(logged.get("error"), None, "{logged}");
    Ok(())
}

/// Where podman has CRIU's images of a container that it keeps itself.
fn image_directory(lab: &Lab, name: &str) -> Result<String> {
    lab.podman(&["inspect", "--format", "{{.State.CheckpointPath}}", name])
}

fn manifest(lab: &Lab, directory: &str) -> Result<serde_json::Value> {
    let text = std::fs::read_to_string(lab.host.path(format!("{directory}/stasis.json")))?;
    Ok(serde_json::from_str(&text)?)
}
