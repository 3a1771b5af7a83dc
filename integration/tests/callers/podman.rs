//! podman: checkpoints and restores with runc and with crun below stasis, each of them on both
//! kinds of cgroups.

mod sharing;

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::image_files;
use stasis_integration::container::saved_at_stop::{IMAGES, SETTINGS, options};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(all_paths: trixie_hybrid, crun_on_trixie_v2, crun_on_sid_hybrid, sid_v2);

fn all_paths(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    stasis.podman_load()?;
    try_all(&stasis).with_context(|| stasis.account("podman"))
}

fn try_all(stasis: &StasisHost) -> Result<()> {
    counter_is_checkpointed_and_restored(stasis)?;
    memory_comes_back_twice_from_kept_files(stasis)?;
    counter_goes_on_when_left_running(stasis)?;
    archive_is_imported_under_another_name(stasis)?;
    new_container_begins_with_an_image(stasis)?;
    stopped_container_goes_on_in_another(stasis)?;
    another_network_has_another_address(stasis)?;
    established_connections_are_accepted(stasis)?;
    tree_counts_on(stasis)?;
    sharing::stays_shared(stasis)?;
    terminal_container(stasis)?;
    plain_container_gets_a_plain_image(stasis)?;
    failed_checkpoint_changes_nothing(stasis)
}

/// After a checkpoint the container is gone from the GPU; the restored one counts on.
fn counter_is_checkpointed_and_restored(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    assert_ne!(stasis.gpu_descriptors()?, 0);
    stasis.check("podman", "counter")?;
    stasis.podman_container(&["checkpoint"], "counter")?;
    assert_eq!(stasis.gpu_descriptors()?, 0);
    assert_eq!(stasis.podman_status("counter")?, "exited");
    assert!(stasis.is_silent(10000)?);
    assert_succeeded(stasis, "checkpoint")?;
    stasis.podman_container(&["restore"], "counter")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    assert_succeeded(stasis, "restore")?;
    assert_eq!(stasis.podman_status("counter")?, "running");
    // A restored container can be checkpointed again.
    stasis.podman_container(&["checkpoint"], "counter")?;
    stasis.podman_container(&["restore"], "counter")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    stasis.podman_remove("counter")
}

/// `--keep` leaves the image directory in place, at the checkpoint and at the restore.
fn memory_comes_back_twice_from_kept_files(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("memory", &[], &["/bin/memcheck", "64", "10001"])?;
    assert_eq!(stasis.ask_until_up(10001)?, "ok 0");
    stasis.podman_container(&["checkpoint", "--keep"], "memory")?;
    let directory = image_directory(stasis, "memory")?;
    let manifest = image_files::manifest(&stasis.path(&directory))?;
    assert_eq!(manifest["processes"][0]["pid"], 1);
    let bytes = manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
    assert!(bytes > Some(64 << 20), "{bytes:?}");
    for _ in 0..2 {
        stasis.podman_container(&["restore", "--keep"], "memory")?;
        assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 1"));
        assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 2"));
        stasis.podman_kill("memory")?;
    }
    stasis.podman_remove("memory")
}

fn counter_goes_on_when_left_running(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("left", &[], &["/bin/counter", "10002"])?;
    assert_eq!(stasis.ask_until_up(10002)?, "101");
    for answer in ["102", "103"] {
        stasis.podman_container(&["checkpoint", "--leave-running", "--keep"], "left")?;
        assert_succeeded(stasis, "checkpoint")?;
        assert_eq!(stasis.podman_status("left")?, "running");
        assert_eq!(stasis.ask(10002)?.as_deref(), Some(answer));
    }
    // The kept files hold the container's state at the second checkpoint.
    stasis.podman_kill("left")?;
    stasis.podman_container(&["restore"], "left")?;
    assert_eq!(stasis.ask(10002)?.as_deref(), Some("103"));
    stasis.podman_remove("left")
}

fn archive_is_imported_under_another_name(stasis: &StasisHost) -> Result<()> {
    let archive = "/images/exported.tar";
    stasis.podman_run("exported", &[], &["/bin/memcheck", "16", "10003"])?;
    assert_eq!(stasis.ask_until_up(10003)?, "ok 0");
    stasis.podman_container(
        &["checkpoint", "--compress", "none", "--export", archive],
        "exported",
    )?;
    stasis.podman_remove("exported")?;
    let files = stasis.run_for_text(&["tar", "-tf", archive])?;
    assert!(
        files.lines().any(|file| file == "checkpoint/stasis.json"),
        "{files}"
    );
    for name in ["imported", "again"] {
        stasis.podman(&["container", "restore", "--import", archive, "--name", name])?;
        assert_eq!(stasis.podman_status(name)?, "running");
        assert_eq!(stasis.ask(10003)?.as_deref(), Some("ok 1"));
        stasis.podman_remove(name)?;
    }
    Ok(())
}

/// A new container begins with the image of another one, at its `create`. crun cannot hold a
/// restored container back, so the new one starts cold there.
fn new_container_begins_with_an_image(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    stasis.podman_run("origin", &[], &["/bin/counter", "10004"])?;
    assert_eq!(stasis.ask_until_up(10004)?, "101");
    stasis.podman_container(&["checkpoint", "--keep"], "origin")?;
    let image = image_directory(stasis, "origin")?;
    let script = format!("mkdir -p /images/job && cp -a {image} /images/job/1");
    stasis.run(&["bash", "-c", &script])?;
    stasis.podman_remove("origin")?;
    let begins = ["--annotation", "io.stasis.restore=latest:job"];
    for name in ["next", "after"] {
        stasis.podman_run(name, &begins, &["/bin/counter", "10004"])?;
        let from_image = stasis.low_level == "runc";
        let answer = if from_image { "102" } else { "101" };
        assert_eq!(stasis.ask_until_up(10004)?, answer);
        let notes = stasis.operation("create")?["notes"].to_string();
        assert_eq!(notes.contains("started cold"), !from_image, "{notes}");
        stasis.podman_remove(name)?;
    }
    stasis.set(&stasis.low_level, "")
}

/// `podman stop` finds its end before the grace period is over.
fn stopped_container_goes_on_in_another(stasis: &StasisHost) -> Result<()> {
    stasis.set(&stasis.low_level, SETTINGS)?;
    let options = options();
    let options = options.each_ref().map(String::as_str);
    let from_image = stasis.low_level == "runc";
    for (name, answer, kept) in [
        ("first", "101", 1),
        ("second", "102", 2),
        ("third", "103", 2),
    ] {
        stasis.podman_run(name, &options, &["/bin/counter", "10004"])?;
        let answer = if from_image { answer } else { "101" };
        assert_eq!(stasis.ask_until_up(10004)?, answer);
        stasis.podman(&["stop", "-t", "600", name])?;
        stasis.podman_has_ended(name)?;
        stasis.podman(&["rm", name])?;
        stasis.was_saved_at_stop(IMAGES, kept)?;
    }
    stasis.set(&stasis.low_level, "")
}

/// In podman's usual network, at another address. The counter listens to its own network alone. The
/// hosts lack nftables, which podman's network needs for rules between networks.
fn another_network_has_another_address(stasis: &StasisHost) -> Result<()> {
    if stasis.low_level != "runc" {
        return Ok(());
    }
    let directory = stasis.path("/etc/containers/containers.conf.d");
    std::fs::create_dir_all(&directory)?;
    let without_rules = "[network]\nfirewall_driver = \"none\"\n";
    std::fs::write(directory.join("network.conf"), without_rules)?;
    stasis.set(&stasis.low_level, SETTINGS)?;
    for (name, address, answer) in [("here", "10.88.0.7", "101"), ("there", "10.88.0.8", "102")] {
        let options = [
            "--annotation=io.stasis.checkpoint=on-term",
            "--annotation=io.stasis.checkpoint.key=network",
            "--annotation=io.stasis.restore=latest:network",
            "--network=bridge",
            &format!("--ip={address}"),
        ];
        stasis.podman_run(name, &options, &["/bin/counter", "10004"])?;
        let pid = stasis.podman(&["inspect", "--format", "{{.State.Pid}}", name])?;
        let inside = |script: &str| {
            let enter = [
                "nsenter",
                "--target",
                pid.trim(),
                "--net",
                "bash",
                "-c",
                script,
            ];
            stasis.run_for_text(&enter)
        };
        assert_eq!(stasis.ask_inside(pid.trim(), 10004)?, answer);
        let own = inside("ip -4 address show eth0")?;
        assert!(own.contains(&format!(" {address}/")), "{own}");
        stasis.podman(&["stop", "-t", "600", name])?;
        stasis.podman_has_ended(name)?;
        stasis.podman(&["rm", name])?;
        stasis.nobody_is_stopped()?;
        let stopped = stasis.operation("stop")?;
        assert_eq!(stopped["notes"], serde_json::Value::Null, "{stopped}");
    }
    stasis.set(&stasis.low_level, "")
}

/// The counter has no connection; podman passes the option to the runtime in either direction.
fn established_connections_are_accepted(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("tcp", &[], &["/bin/counter", "10004"])?;
    assert_eq!(stasis.ask_until_up(10004)?, "101");
    stasis.podman_container(&["checkpoint", "--tcp-established"], "tcp")?;
    stasis.podman_container(&["restore", "--tcp-established"], "tcp")?;
    assert_eq!(stasis.ask(10004)?.as_deref(), Some("102"));
    stasis.podman_remove("tcp")
}

fn tree_counts_on(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("tree", &[], &["/bin/tree", "10005"])?;
    assert_eq!(stasis.ask_until_up(10005)?, "101 201 301 401 501 601 701 1");
    stasis.podman_container(&["checkpoint", "--keep"], "tree")?;
    let directory = image_directory(stasis, "tree")?;
    let processes = image_files::manifest(&stasis.path(&directory))?["processes"]
        .as_array()
        .map(Vec::len);
    assert_eq!(processes, Some(3));
    stasis.podman_container(&["restore"], "tree")?;
    assert_eq!(
        stasis.ask(10005)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    stasis.podman_remove("tree")
}

fn terminal_container(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("terminal", &["-t"], &["/bin/counter", "10006"])?;
    assert_eq!(stasis.ask_until_up(10006)?, "101");
    stasis.podman_container(&["checkpoint"], "terminal")?;
    stasis.podman_container(&["restore"], "terminal")?;
    assert_eq!(stasis.ask(10006)?.as_deref(), Some("102"));
    stasis.podman_remove("terminal")
}

fn plain_container_gets_a_plain_image(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("plain", &[], &["/bin/pause"])?;
    stasis.podman_container(&["checkpoint", "--keep"], "plain")?;
    let directory = image_directory(stasis, "plain")?;
    assert!(stasis.path(format!("{directory}/inventory.img")).exists());
    assert!(!stasis.path(format!("{directory}/stasis.json")).exists());
    stasis.podman_container(&["restore"], "plain")?;
    assert_eq!(stasis.podman_status("plain")?, "running");
    stasis.podman_remove("plain")
}

/// The driver refuses; podman shows why, the container goes on, and the next checkpoint succeeds.
fn failed_checkpoint_changes_nothing(stasis: &StasisHost) -> Result<()> {
    stasis.podman_run("failed", &[], &["/bin/counter", "10007"])?;
    assert_eq!(stasis.ask_until_up(10007)?, "101");
    stasis.inject("checkpoint failed error:801 1")?;
    let message = stasis.fails(&["podman", "container", "checkpoint", "failed"])?;
    assert_contains(&message, &["CUDA_ERROR_NOT_SUPPORTED (801)"]);
    assert_eq!(stasis.podman_status("failed")?, "running");
    assert_eq!(stasis.ask(10007)?.as_deref(), Some("102"));
    stasis.podman_container(&["checkpoint"], "failed")?;
    stasis.podman_container(&["restore"], "failed")?;
    assert_eq!(stasis.ask(10007)?.as_deref(), Some("103"));
    stasis.podman_remove("failed")
}

fn assert_succeeded(stasis: &StasisHost, operation: &str) -> Result<()> {
    let logged = stasis.last_operation()?;
    assert_eq!(logged["operation"], operation, "{logged}");
    assert_eq!(logged.get("error"), None, "{logged}");
    Ok(())
}

/// Returns the directory with CRIU's images of a container that podman keeps itself.
fn image_directory(stasis: &StasisHost, name: &str) -> Result<String> {
    stasis.podman(&["inspect", "--format", "{{.State.CheckpointPath}}", name])
}
