//! containerd: checkpoints and restores with `ctr`, in all four test hosts.

use anyhow::Result;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

/// How containerd comes to stasis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Through {
    /// Its own shim runs `stasis-runtime`.
    Runtime,
    /// Our shim.
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
fn shim_on_trixie_hybrid() -> Result<()> {
    all_paths(Suite::Trixie, Cgroups::Hybrid, Through::Shim)
}

#[test]
fn shim_on_trixie_v2() -> Result<()> {
    all_paths(Suite::Trixie, Cgroups::V2, Through::Shim)
}

#[test]
fn shim_on_sid_hybrid() -> Result<()> {
    all_paths(Suite::Sid, Cgroups::Hybrid, Through::Shim)
}

#[test]
fn shim_on_sid_v2() -> Result<()> {
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
    let _containerd = lab.containerd()?;
    counter_is_checkpointed_and_restored(&lab)?;
    memory_comes_back(&lab)?;
    task_goes_on_after_a_checkpoint_into_a_directory(&lab)?;
    task_ends_with_exit(&lab)?;
    tree_counts_on(&lab)?;
    terminal_container(&lab)?;
    paused_task_stays_paused(&lab)?;
    plain_container_gets_a_plain_image(&lab)?;
    nested_cgroup_is_seen(&lab, cgroups)
}

/// The container goes on after the checkpoint; after it is gone, the restored one counts on from
/// the checkpoint.
fn counter_is_checkpointed_and_restored(lab: &Lab) -> Result<()> {
    lab.ctr_run("counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(lab.ask_until_up(10000)?, "101");
    lab.ctr_checkpoint("counter", "counter:1")?;
    assert_eq!(lab.ask_until_up(10000)?, "102");
    lab.ctr_remove("counter")?;
    assert_eq!(lab.ask(10000)?, None);
    lab.ctr_restore("counter", "counter:1")?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("102"));
    assert_eq!(lab.last_operation()?["operation"], "restore");
    lab.ctr_remove("counter")
}

fn memory_comes_back(lab: &Lab) -> Result<()> {
    lab.ctr_run("memory", &[], &["/bin/memcheck", "64", "10001"])?;
    assert_eq!(lab.ask_until_up(10001)?, "ok 0");
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 1"));
    lab.ctr_checkpoint("memory", "memory:1")?;
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 2"));
    lab.ctr_remove("memory")?;
    lab.ctr_restore("memory", "memory:1")?;
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 2"));
    assert_eq!(lab.ask(10001)?.as_deref(), Some("ok 3"));
    lab.ctr_remove("memory")
}

/// The manifest of an image directory, as JSON.
fn manifest(lab: &Lab, directory: &str) -> Result<serde_json::Value> {
    let text = std::fs::read_to_string(lab.host.path(format!("{directory}/stasis.json")))?;
    Ok(serde_json::from_str(&text)?)
}

fn task_goes_on_after_a_checkpoint_into_a_directory(lab: &Lab) -> Result<()> {
    lab.ctr_run("dir", &[], &["/bin/memcheck", "32", "10002"])?;
    assert_eq!(lab.ask_until_up(10002)?, "ok 0");
    for checkpoint in ["/images/dir1", "/images/dir2"] {
        lab.host
            .run(&["ctr", "t", "checkpoint", "--image-path", checkpoint, "dir"])?;
        assert_eq!(lab.ctr_status("dir")?, "RUNNING");
        let manifest = manifest(lab, checkpoint)?;
        assert_eq!(manifest["container"], "dir");
        assert_eq!(manifest["processes"][0]["pid"], 1);
        assert!(manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64() > Some(32 << 20));
        assert_eq!(manifest["gpus"].as_array().map(Vec::len), Some(1));
    }
    assert_eq!(lab.ask(10002)?.as_deref(), Some("ok 1"));
    lab.ctr_remove("dir")
}

fn task_ends_with_exit(lab: &Lab) -> Result<()> {
    lab.ctr_run("exit", &[], &["/bin/counter", "10003"])?;
    assert_eq!(lab.ask_until_up(10003)?, "101");
    lab.host.run(&[
        "ctr",
        "t",
        "checkpoint",
        "--exit",
        "--image-path",
        "/images/exit",
        "exit",
    ])?;
    lab.ctr_wait_for("exit", "STOPPED")?;
    assert_eq!(lab.ask(10003)?, None);
    lab.ctr_remove("exit")
}

fn tree_counts_on(lab: &Lab) -> Result<()> {
    lab.ctr_run("tree", &[], &["/bin/tree", "10004"])?;
    assert_eq!(lab.ask_until_up(10004)?, "101 201 301 401 501 601 701 1");
    lab.ctr_checkpoint("tree", "tree:1")?;
    assert_eq!(
        lab.ask(10004)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    lab.ctr_remove("tree")?;
    lab.ctr_restore("tree", "tree:1")?;
    assert_eq!(
        lab.ask(10004)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    lab.ctr_remove("tree")
}

/// `ctr run -t -d` gives the container a terminal; after the restore it has one again.
fn terminal_container(lab: &Lab) -> Result<()> {
    lab.ctr_run("terminal", &["-t"], &["/bin/counter", "10005"])?;
    assert_eq!(lab.ask_until_up(10005)?, "101");
    lab.ctr_checkpoint("terminal", "terminal:1")?;
    assert_eq!(lab.ask(10005)?.as_deref(), Some("102"));
    lab.ctr_remove("terminal")?;
    // ctr stays attached to the terminal of the container that it restored, and does not notice its
    // end; it is not needed any longer once there is an answer.
    let restore = "ctr c restore --rw --live terminal terminal:1";
    let attached = ["5", "script", "-qec", restore, "/dev/null"];
    let mut attached = lab.command("timeout").args(attached).spawn()?;
    assert_eq!(lab.ask_until_up(10005)?, "102");
    attached.wait()?;
    assert_eq!(lab.ask(10005)?.as_deref(), Some("103"));
    lab.ctr_remove("terminal")
}

/// A task that its user paused stays paused after the checkpoint, and has its GPU after resume.
fn paused_task_stays_paused(lab: &Lab) -> Result<()> {
    lab.ctr_run("paused", &[], &["/bin/memcheck", "16", "10006"])?;
    assert_eq!(lab.ask_until_up(10006)?, "ok 0");
    lab.host.run(&["ctr", "t", "pause", "paused"])?;
    for checkpoint in ["/images/paused1", "/images/paused2"] {
        lab.host.run(&[
            "ctr",
            "t",
            "checkpoint",
            "--image-path",
            checkpoint,
            "paused",
        ])?;
        assert_eq!(lab.ctr_status("paused")?, "PAUSED");
        assert_eq!(lab.ask(10006)?, None);
        let bytes = manifest(lab, checkpoint)?["processes"][0]["gpus"][0]["memory_bytes"].as_u64();
        assert!(bytes > Some(16 << 20), "{checkpoint}: {bytes:?}");
    }
    lab.host.run(&["ctr", "t", "resume", "paused"])?;
    assert_eq!(lab.ctr_status("paused")?, "RUNNING");
    // The question asked while it was paused was answered first.
    assert!(
        lab.ask(10006)?
            .is_some_and(|answer| answer.starts_with("ok "))
    );
    lab.ctr_remove("paused")
}

fn plain_container_gets_a_plain_image(lab: &Lab) -> Result<()> {
    lab.ctr_run("plain", &[], &["/bin/pause"])?;
    lab.host
        .write("/images/plain/stasis.json", "of an earlier checkpoint")?;
    lab.host.run(&[
        "ctr",
        "t",
        "checkpoint",
        "--image-path",
        "/images/plain",
        "plain",
    ])?;
    assert!(!lab.host.path("/images/plain/stasis.json").exists());
    assert!(lab.host.path("/images/plain/inventory.img").exists());
    lab.ctr_checkpoint("plain", "plain:1")?;
    lab.ctr_remove("plain")?;
    lab.ctr_restore("plain", "plain:1")?;
    assert_eq!(lab.ctr_status("plain")?, "RUNNING");
    lab.ctr_remove("plain")
}

/// The container's processes are moved into a cgroup below the container's own, as an init system
/// or a nested engine does.
fn nested_cgroup_is_seen(lab: &Lab, cgroups: Cgroups) -> Result<()> {
    lab.ctr_run("nested", &[], &["/bin/tree", "10007"])?;
    assert_eq!(lab.ask_until_up(10007)?, "101 201 301 401 501 601 701 1");
    let hierarchy = match cgroups {
        Cgroups::Hybrid => "/sys/fs/cgroup/freezer",
        Cgroups::V2 => "/sys/fs/cgroup",
    };
    let script = format!(
        "cd {hierarchy}/default/nested && mkdir inner && \
         for pid in $(tail -n +2 cgroup.procs); do echo $pid >inner/cgroup.procs; done"
    );
    lab.host.run(&["bash", "-c", &script])?;
    lab.host.run(&[
        "ctr",
        "t",
        "checkpoint",
        "--image-path",
        "/images/nested",
        "nested",
    ])?;
    let processes = manifest(lab, "/images/nested")?["processes"]
        .as_array()
        .map(Vec::len);
    assert_eq!(processes, Some(3));
    assert_eq!(
        lab.ask(10007)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    lab.ctr_remove("nested")
}
