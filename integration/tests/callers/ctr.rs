//! containerd: checkpoints and restores with `ctr`, in all four test hosts.

use anyhow::{Context, Result};
use stasis_integration::container::image_files;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{Cgroups, HostKind};

mod through_the_runtime {
    stasis_integration::on_hosts!(super::through_the_runtime: trixie_hybrid, trixie_v2, sid_hybrid, sid_v2);
}

mod through_the_shim {
    stasis_integration::on_hosts!(super::through_the_shim: trixie_hybrid, trixie_v2, sid_hybrid, sid_v2);
}

fn through_the_runtime(kind: HostKind) -> Result<()> {
    all_paths(&StasisHost::of(kind)?)
}

fn through_the_shim(kind: HostKind) -> Result<()> {
    all_paths(&StasisHost::of(kind)?.through_the_shim()?)
}

fn all_paths(stasis: &StasisHost) -> Result<()> {
    let _containerd = stasis.containerd()?;
    counter_is_checkpointed_and_restored(stasis)?;
    memory_comes_back(stasis)?;
    task_goes_on_after_a_checkpoint_into_a_directory(stasis)?;
    task_ends_with_exit(stasis)?;
    tree_counts_on(stasis)?;
    terminal_container(stasis)?;
    paused_task_stays_paused(stasis)?;
    plain_container_gets_a_plain_image(stasis)?;
    nested_cgroup_is_seen(stasis)?;
    nccl_is_made_checkpointable(stasis)
}

/// The variables that the annotation asks for are in the environment when the program starts.
fn nccl_is_made_checkpointable(stasis: &StasisHost) -> Result<()> {
    let annotated = ["--annotation", "io.stasis.nccl=checkpointable"];
    stasis.ctr_run("nccl", &annotated, &["/bin/counter", "10009"])?;
    assert_eq!(stasis.ask_until_up(10009)?, "101");
    let pid = stasis.run(&["pgrep", "-x", "counter"])?.stdout;
    let pid = String::from_utf8_lossy(&pid).trim().to_owned();
    let environment = stasis.run(&["cat", &format!("/proc/{pid}/environ")])?;
    let environment = String::from_utf8_lossy(&environment.stdout).into_owned();
    let has = |variable: &str| environment.split('\0').any(|it| it == variable);
    assert!(
        has("NCCL_NVLS_ENABLE=0") && has("NCCL_IB_DISABLE=1"),
        "{environment}"
    );
    stasis.ctr_remove("nccl")?;
    let unknown = ["--annotation", "io.stasis.nccl=yes"];
    let refused = stasis.ctr_run("nccl", &unknown, &["/bin/counter", "10009"]);
    let said = refused.err().context("it was created")?;
    let said = format!("{said:#}");
    assert!(said.contains("nothing was created"), "{said}");
    Ok(())
}

/// The container goes on after the checkpoint; after it is gone, the restored one counts on from
/// the checkpoint.
fn counter_is_checkpointed_and_restored(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("counter", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    stasis.ctr_checkpoint("counter", "counter:1")?;
    assert_eq!(stasis.ask_until_up(10000)?, "102");
    stasis.ctr_remove("counter")?;
    assert!(stasis.is_silent(10000)?);
    stasis.ctr_restore("counter", "counter:1")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    assert_eq!(stasis.last_operation()?["operation"], "restore");
    stasis.ctr_remove("counter")
}

fn memory_comes_back(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("memory", &[], &["/bin/memcheck", "64", "10001"])?;
    assert_eq!(stasis.ask_until_up(10001)?, "ok 0");
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 1"));
    stasis.ctr_checkpoint("memory", "memory:1")?;
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 2"));
    stasis.ctr_remove("memory")?;
    stasis.ctr_restore("memory", "memory:1")?;
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 2"));
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("ok 3"));
    stasis.ctr_remove("memory")
}

fn task_goes_on_after_a_checkpoint_into_a_directory(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("dir", &[], &["/bin/memcheck", "32", "10002"])?;
    assert_eq!(stasis.ask_until_up(10002)?, "ok 0");
    for checkpoint in ["/images/dir1", "/images/dir2"] {
        checkpoint_into(stasis, checkpoint, &["dir"])?;
        assert_eq!(stasis.ctr_status("dir")?, "RUNNING");
        let manifest = image_files::manifest(&stasis.path(checkpoint))?;
        assert_eq!(manifest["container"], "dir");
        assert_eq!(manifest["processes"][0]["pid"], 1);
        assert!(manifest["processes"][0]["gpus"][0]["memory_bytes"].as_u64() > Some(32 << 20));
        assert_eq!(manifest["gpus"].as_array().map(Vec::len), Some(1));
    }
    assert_eq!(stasis.ask(10002)?.as_deref(), Some("ok 1"));
    stasis.ctr_remove("dir")
}

fn task_ends_with_exit(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("exit", &[], &["/bin/counter", "10003"])?;
    assert_eq!(stasis.ask_until_up(10003)?, "101");
    checkpoint_into(stasis, "/images/exit", &["--exit", "exit"])?;
    stasis.ctr_wait_for("exit", "STOPPED")?;
    assert!(stasis.is_silent(10003)?);
    stasis.ctr_remove("exit")
}

fn tree_counts_on(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("tree", &[], &["/bin/tree", "10004"])?;
    assert_eq!(stasis.ask_until_up(10004)?, "101 201 301 401 501 601 701 1");
    stasis.ctr_checkpoint("tree", "tree:1")?;
    assert_eq!(
        stasis.ask(10004)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    stasis.ctr_remove("tree")?;
    stasis.ctr_restore("tree", "tree:1")?;
    assert_eq!(
        stasis.ask(10004)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    stasis.ctr_remove("tree")
}

/// `ctr run -t -d` gives the container a terminal; after the restore it has one again.
fn terminal_container(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("terminal", &["-t"], &["/bin/counter", "10005"])?;
    assert_eq!(stasis.ask_until_up(10005)?, "101");
    stasis.ctr_checkpoint("terminal", "terminal:1")?;
    assert_eq!(stasis.ask(10005)?.as_deref(), Some("102"));
    stasis.ctr_remove("terminal")?;
    // ctr stays attached to the terminal of the container that it restored, and does not notice its
    // end; it is not needed any longer once there is an answer.
    let restore = "ctr c restore --rw --live terminal terminal:1";
    let attached = ["-qec", restore, "/dev/null"];
    let mut attached = stasis.command("script").args(attached).spawn()?;
    let answer = stasis.ask_until_up(10005);
    let restored = stasis.ctr_wait_for("terminal", "RUNNING");
    stasis.run(&["pkill", "-x", "script"])?;
    attached.wait()?;
    assert_eq!(answer?, "102");
    restored?;
    assert_eq!(stasis.ask(10005)?.as_deref(), Some("103"));
    stasis.ctr_remove("terminal")
}

/// A task that its user paused stays paused after the checkpoint, and has its GPU after resume.
fn paused_task_stays_paused(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("paused", &[], &["/bin/memcheck", "16", "10006"])?;
    assert_eq!(stasis.ask_until_up(10006)?, "ok 0");
    stasis.run(&["ctr", "t", "pause", "paused"])?;
    for checkpoint in ["/images/paused1", "/images/paused2"] {
        checkpoint_into(stasis, checkpoint, &["paused"])?;
        assert_eq!(stasis.ctr_status("paused")?, "PAUSED");
        assert!(stasis.is_silent(10006)?);
        let bytes = image_files::manifest(&stasis.path(checkpoint))?["processes"][0]["gpus"]
            [0]["memory_bytes"]
            .as_u64();
        assert!(bytes > Some(16 << 20), "{checkpoint}: {bytes:?}");
    }
    stasis.run(&["ctr", "t", "resume", "paused"])?;
    assert_eq!(stasis.ctr_status("paused")?, "RUNNING");
    // The question asked while it was paused was answered first.
    assert!(
        stasis
            .ask(10006)?
            .is_some_and(|answer| answer.starts_with("ok "))
    );
    stasis.ctr_remove("paused")
}

fn plain_container_gets_a_plain_image(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("plain", &[], &["/bin/pause"])?;
    stasis.write("/images/plain/stasis.json", "of an earlier checkpoint")?;
    checkpoint_into(stasis, "/images/plain", &["plain"])?;
    assert!(!stasis.path("/images/plain/stasis.json").exists());
    assert!(stasis.path("/images/plain/inventory.img").exists());
    stasis.ctr_checkpoint("plain", "plain:1")?;
    stasis.ctr_remove("plain")?;
    stasis.ctr_restore("plain", "plain:1")?;
    assert_eq!(stasis.ctr_status("plain")?, "RUNNING");
    stasis.ctr_remove("plain")
}

/// The container's processes are moved into a cgroup below the container's own, as an init system
/// or a nested engine does.
fn nested_cgroup_is_seen(stasis: &StasisHost) -> Result<()> {
    stasis.ctr_run("nested", &[], &["/bin/tree", "10007"])?;
    assert_eq!(stasis.ask_until_up(10007)?, "101 201 301 401 501 601 701 1");
    let hierarchy = match stasis.cgroups {
        Cgroups::Hybrid => "/sys/fs/cgroup/freezer",
        Cgroups::V2 => "/sys/fs/cgroup",
    };
    let script = format!(
        "cd {hierarchy}/default/nested && mkdir inner && \
         for pid in $(tail -n +2 cgroup.procs); do echo $pid >inner/cgroup.procs; done"
    );
    stasis.run(&["bash", "-c", &script])?;
    checkpoint_into(stasis, "/images/nested", &["nested"])?;
    let processes = image_files::manifest(&stasis.path("/images/nested"))?["processes"]
        .as_array()
        .map(Vec::len);
    assert_eq!(processes, Some(3));
    assert_eq!(
        stasis.ask(10007)?.as_deref(),
        Some("102 202 302 402 502 602 702 2")
    );
    stasis.ctr_remove("nested")
}

fn checkpoint_into(stasis: &StasisHost, directory: &str, task: &[&str]) -> Result<()> {
    let checkpoint = ["ctr", "t", "checkpoint", "--image-path", directory];
    stasis.run(&[&checkpoint, task].concat()).map(drop)
}
