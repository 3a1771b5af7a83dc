//! Checkpoints that fail: whatever fails, the workload goes on with its GPU, nothing stays locked, the
//! freezer is as it was, and the message says what was wrong.

use std::fs;

use anyhow::{Context, Result};
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::message::says;

/// What stasis has recorded of operations that are under way.
fn records(lab: &Lab) -> String {
    let found = lab
        .host
        .run_for_text(&["find", "/run/stasis/containers", "-type", "f"]);
    found.unwrap_or_default()
}

#[test]
fn on_hybrid_cgroups() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    all_cases(&lab)
}

#[test]
fn on_cgroups_v2() -> Result<()> {
    let lab = Lab::start(Suite::Trixie, Cgroups::V2, "runc")?;
    all_cases(&lab)
}

fn all_cases(lab: &Lab) -> Result<()> {
    let _containerd = lab.containerd()?;
    let tree = Bundle::make(lab, "tree", &["/bin/tree", "10000"])?;
    tree.run()?;
    lab.ask_until_up(10000)?;
    let cases: [(&str, Case); 6] = [
        ("lock deadline", lock_deadline_passes_on_one_of_three),
        ("stopped member", stopped_member_is_refused),
        ("gpu checkpoint", gpu_checkpoint_fails_on_the_second),
        ("image directory", image_directory_cannot_be_used),
        ("programs missing", programs_are_missing),
        ("driver", driver_lacks_the_calls),
    ];
    for (name, case) in cases {
        case(lab, &tree).map_err(|error| error.context(name))?;
        lab.order("")?;
        lab.set("runc", "")?;
        assert_eq!(records(lab), "", "after {name}");
        assert!(tree_is_well(lab, &tree)?, "after {name}");
    }
    // It can still be checkpointed.
    tree.checkpoint("good", &[])?;
    tree.restore("good")?;
    assert!(tree_is_well(lab, &tree)?);
    one_that_crashes_is_not_missed_and_noted(lab, &tree)?;
    tree.delete()?;
    frozen_container_is_frozen_again(lab)?;
    criu_fails_after_the_gpu_checkpoint(lab)?;
    pre_dump_is_refused(lab)?;
    managed_memory_is_left_alone(lab)
}

type Case = fn(&Lab, &Bundle<'_>) -> Result<()>;

/// All members answer with numbers that are each one more than before.
fn tree_is_well(lab: &Lab, tree: &Bundle<'_>) -> Result<bool> {
    assert_eq!(tree.status()?, "running");
    let count = |text: Option<String>| -> Option<Vec<u32>> {
        text?
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    };
    let (first, second) = (count(lab.ask(10000)?), count(lab.ask(10000)?));
    let next = first.map(|numbers| numbers.iter().map(|number| number + 1).collect::<Vec<_>>());
    Ok(next.is_some_and(|next| next.len() == 8 && Some(next) == second))
}

fn one_that_crashes_is_not_missed_and_noted(lab: &Lab, tree: &Bundle<'_>) -> Result<()> {
    lab.order("lock tree-3 crash 1")?;
    tree.checkpoint("crashed", &["--leave-running"])?;
    lab.order("")?;
    let notes = lab.operation("checkpoint")?["notes"].to_string();
    says(&notes, &["ended before all were locked"]);
    // The third answers no more, and the others go on.
    let answer = lab.ask(10000)?.unwrap_or_default();
    let words: Vec<&str> = answer.split_whitespace().collect();
    assert!(
        words.contains(&"ended") || words.contains(&"lost"),
        "{answer}"
    );
    Ok(())
}

fn lock_deadline_passes_on_one_of_three(lab: &Lab, tree: &Bundle<'_>) -> Result<()> {
    lab.order("lock tree-2 busy")?;
    lab.set("runc", "[deadlines]\nlock_ms = 500\nlock_try_ms = 50\n")?;
    let said = tree.checkpoint_fails("deadline", &[])?;
    says(
        &said,
        &[
            "checkpoint of container tree failed",
            "lock of process",
            "500 ms",
        ],
    );
    says(&said, &["the container runs on as before, with its GPU"]);
    assert!(!tree.image_path("deadline/stasis.json").exists());
    Ok(())
}

/// The driver never answers for a stopped process: it must not be asked.
fn stopped_member_is_refused(lab: &Lab, tree: &Bundle<'_>) -> Result<()> {
    let members = lab
        .host
        .run_for_text(&["pgrep", "-P", &tree.pid()?.to_string()])?;
    let member = members.lines().nth(1).context("the tree has no members")?;
    lab.host.run(&["kill", "-STOP", member])?;
    let said = tree.checkpoint_fails("stopped", &[])?;
    says(
        &said,
        &["refused", member, "it is stopped", "nothing was changed"],
    );
    lab.host.run(&["kill", "-CONT", member])?;
    Ok(())
}

fn gpu_checkpoint_fails_on_the_second(lab: &Lab, tree: &Bundle<'_>) -> Result<()> {
    lab.order("checkpoint tree-2 error:801")?;
    let said = tree.checkpoint_fails("second", &["--leave-running"])?;
    says(
        &said,
        &[
            "gpu checkpoint of process",
            "CUDA_ERROR_NOT_SUPPORTED (801)",
            "runs on",
        ],
    );
    Ok(())
}

fn image_directory_cannot_be_used(lab: &Lab, tree: &Bundle<'_>) -> Result<()> {
    let said = tree.checkpoint_fails("no/such/directory", &[])?;
    says(
        &said,
        &[
            "refused",
            "/images/tree-no/such/directory",
            "nothing was changed",
        ],
    );
    let directory = tree.image("small");
    for (options, part) in [
        ("ro", "Read-only file system"),
        ("size=64k", "the file system of /images/tree-small is full"),
    ] {
        lab.host.run(&["mkdir", "-p", &directory])?;
        lab.host
            .run(&["mount", "-t", "tmpfs", "-o", options, "tmpfs", &directory])?;
        let said = tree.checkpoint_fails("small", &[])?;
        says(&said, &[part]);
        lab.host.run(&["umount", &directory])?;
    }
    Ok(())
}

fn programs_are_missing(lab: &Lab, tree: &Bundle<'_>) -> Result<()> {
    lab.set("/usr/bin/no-such-runc", "")?;
    let said = tree.checkpoint_fails("missing", &[])?;
    says(
        &said,
        &[
            "no low-level runtime",
            "/usr/bin/no-such-runc",
            "runtime.path",
        ],
    );
    lab.set("runc", "")?;
    lab.host
        .run(&["mv", "/usr/sbin/criu", "/usr/sbin/criu.away"])?;
    let said = tree.checkpoint_fails("missing", &[]);
    lab.host
        .run(&["mv", "/usr/sbin/criu.away", "/usr/sbin/criu"])?;
    says(
        &said?,
        &[
            "runc checkpoint ended with exit status: 1",
            "criu",
            "runs on as before",
        ],
    );
    Ok(())
}

fn driver_lacks_the_calls(lab: &Lab, tree: &Bundle<'_>) -> Result<()> {
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    lab.set("runc", &format!("driver.libcuda = \"{libc}\"\n"))?;
    let said = tree.checkpoint_fails("driver", &[])?;
    says(
        &said,
        &[
            libc,
            "cuCheckpointProcess",
            "driver 570",
            "nothing was changed",
        ],
    );
    lab.set("runc", "driver.libcuda = \"/no/libcuda.so.1\"\n")?;
    says(
        &tree.checkpoint_fails("driver", &[])?,
        &["/no/libcuda.so.1", "nothing was changed"],
    );
    Ok(())
}

fn frozen_container_is_frozen_again(lab: &Lab) -> Result<()> {
    let frozen = Bundle::make(lab, "frozen", &["/bin/counter", "10001"])?;
    frozen.run()?;
    assert_eq!(lab.ask_until_up(10001)?, "101");
    lab.order("checkpoint frozen error:801")?;
    assert!(frozen.runtime(&["pause", "frozen"]).status()?.success());
    let said = frozen.checkpoint_fails("frozen", &["--leave-running"])?;
    says(
        &said,
        &["801", "the container is paused as before, with its GPU"],
    );
    assert_eq!(frozen.status()?, "paused");
    assert!(frozen.runtime(&["resume", "frozen"]).status()?.success());
    assert_eq!(lab.ask(10001)?.as_deref(), Some("102"));
    lab.order("")?;
    frozen.delete()
}

/// A descriptor that CRIU cannot dump and that is not the driver's to give up.
fn criu_fails_after_the_gpu_checkpoint(lab: &Lab) -> Result<()> {
    let command = [
        "/bin/sh",
        "-c",
        "exec 9</dev/nvidiactl; exec /bin/counter 10002",
    ];
    let undumpable = Bundle::make(lab, "undumpable", &command)?;
    undumpable.run()?;
    assert_eq!(lab.ask_until_up(10002)?, "101");
    let said = undumpable.checkpoint_fails("dump", &[])?;
    says(
        &said,
        &[
            "runc checkpoint ended with",
            "criu said: Error",
            "runs on as before",
        ],
    );
    let log = said
        .split("its log is kept as ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    let log = log
        .map(|path| fs::read_to_string(lab.host.path(path)))
        .transpose()?;
    says(&log.unwrap_or_default(), &["Dumping FAILED"]);
    assert_eq!(lab.ask(10002)?.as_deref(), Some("102"));
    assert!(!undumpable.image_path("dump/stasis.json").exists());
    undumpable.delete()
}

fn pre_dump_is_refused(lab: &Lab) -> Result<()> {
    let counter = Bundle::make(lab, "pre", &["/bin/counter", "10003"])?;
    counter.run()?;
    assert_eq!(lab.ask_until_up(10003)?, "101");
    let said = counter.checkpoint_fails("pre", &["--pre-dump"])?;
    says(
        &said,
        &["refused", "--pre-dump", "counter", "nothing was changed"],
    );
    assert_eq!(lab.ask(10003)?.as_deref(), Some("102"));
    counter.delete()
}

fn managed_memory_is_left_alone(lab: &Lab) -> Result<()> {
    let managed = Bundle::make(lab, "managed", &["/bin/memcheck", "16", "10004", "managed"])?;
    managed.run()?;
    assert_eq!(lab.ask_until_up(10004)?, "ok 0");
    let said = managed.checkpoint_fails("managed", &[])?;
    says(
        &said,
        &["managed-memory", "/dev/nvidia-uvm", "nothing was changed"],
    );
    assert_eq!(lab.ask(10004)?.as_deref(), Some("ok 1"));
    // Where it is not seen beforehand, the driver finds it.
    lab.set("runc", "preflight.allow = [\"managed-memory\"]\n")?;
    let said = managed.checkpoint_fails("managed", &[])?;
    says(
        &said,
        &["gpu checkpoint of process", "801", "runs on as before"],
    );
    assert_eq!(lab.ask(10004)?.as_deref(), Some("ok 2"));
    lab.set("runc", "")?;
    managed.delete()
}
