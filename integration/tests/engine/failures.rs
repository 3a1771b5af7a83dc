//! Checkpoints that fail: in each case the workload goes on with its GPU, no process stays locked,
//! the freezer is as before, and the message names the fault.

use std::fs;

use anyhow::{Context, Result};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(all_cases: sid, trixie_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let tree = Bundle::make(stasis, "tree", &["/bin/tree", "10000"])?;
    tree.run()?;
    stasis.ask_until_up(10000)?;
    let cases: [(&str, Case); 7] = [
        ("lock deadline", lock_deadline_passes_on_one_of_three),
        ("stopped member", stopped_member_is_refused),
        ("gpu checkpoint", gpu_checkpoint_fails_on_the_second),
        ("first unlock", unlock_fails_once_in_the_rollback),
        ("image directory", image_directory_cannot_be_used),
        ("programs missing", programs_are_missing),
        ("driver", driver_lacks_the_calls),
    ];
    for (name, case) in cases {
        case(stasis, &tree).map_err(|error| error.context(name))?;
        stasis.inject("")?;
        stasis.set("runc", "")?;
        assert_eq!(stasis.records()?, "", "after {name}");
        assert!(tree_is_well(stasis, &tree)?, "after {name}");
    }
    // The container can still be checkpointed.
    tree.checkpoint("good", &[])?;
    tree.restore("good")?;
    assert!(tree_is_well(stasis, &tree)?);
    one_that_crashes_is_not_missed_and_noted(stasis, &tree)?;
    tree.delete()?;
    frozen_container_is_frozen_again(stasis)?;
    criu_fails_after_the_gpu_checkpoint(stasis)?;
    pre_dump_is_refused(stasis)?;
    managed_memory_is_left_alone(stasis)
}

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

/// Whether every member answers with a number that is one more than before.
fn tree_is_well(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<bool> {
    assert_eq!(tree.status()?, "running");
    let count = |text: Option<String>| -> Option<Vec<u32>> {
        text?
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect()
    };
    let (first, second) = (count(stasis.ask(10000)?), count(stasis.ask(10000)?));
    let next = first.map(|numbers| numbers.iter().map(|number| number + 1).collect::<Vec<_>>());
    Ok(next.is_some_and(|next| next.len() == 8 && Some(next) == second))
}

fn one_that_crashes_is_not_missed_and_noted(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    stasis.inject("lock tree-3 crash 1")?;
    tree.checkpoint("crashed", &["--leave-running"])?;
    stasis.inject("")?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_contains(&notes, &["ended before all were locked"]);
    // The third process does not answer any more, and the others go on.
    let answer = stasis.ask(10000)?.unwrap_or_default();
    let words: Vec<&str> = answer.split_whitespace().collect();
    assert!(
        words.contains(&"ended") || words.contains(&"lost"),
        "{answer}"
    );
    Ok(())
}

fn lock_deadline_passes_on_one_of_three(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    stasis.inject("lock tree-2 busy")?;
    stasis.set("runc", "[deadlines]\nlock_ms = 500\n")?;
    let message = tree.checkpoint_fails("deadline", &[])?;
    assert_contains(
        &message,
        &[
            "checkpoint of container tree failed",
            "lock of process",
            "500 ms",
        ],
    );
    assert_contains(&message, &["the container runs on as before, with its GPU"]);
    assert!(!tree.image_path("deadline/stasis.json").exists());
    Ok(())
}

/// A process that the second attempt brings back is not reported as lost.
fn unlock_fails_once_in_the_rollback(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    stasis.inject("checkpoint tree-2 error:801\nunlock tree-3 error:999 1")?;
    let message = tree.checkpoint_fails("unlock", &[])?;
    let parts = ["gpu checkpoint of process", "(801)"];
    assert_contains(&message, &parts);
    assert_contains(&message, &["the container runs on as before, with its GPU"]);
    Ok(())
}

/// The driver never answers for a stopped process: the engine must not ask.
fn stopped_member_is_refused(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    let members = stasis.run_for_text(&["pgrep", "-P", &tree.pid()?.to_string()])?;
    let member = members.lines().nth(1).context("the tree has no members")?;
    stasis.host.stop(member)?;
    let message = tree.checkpoint_fails("stopped", &[])?;
    assert_contains(
        &message,
        &["refused", member, "it is stopped", "nothing was changed"],
    );
    stasis.run(&["kill", "-CONT", member])?;
    Ok(())
}

fn gpu_checkpoint_fails_on_the_second(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    stasis.inject("checkpoint tree-2 error:801")?;
    let message = tree.checkpoint_fails("second", &["--leave-running"])?;
    assert_contains(
        &message,
        &[
            "gpu checkpoint of process",
            "CUDA_ERROR_NOT_SUPPORTED (801)",
            "runs on",
        ],
    );
    Ok(())
}

fn image_directory_cannot_be_used(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    stasis.write(&tree.image("file"), "")?;
    let message = tree.checkpoint_fails("file/image", &[])?;
    assert_contains(
        &message,
        &["refused", "/images/tree-file/image", "nothing was changed"],
    );
    let directory = tree.image("small");
    for (options, part) in [
        ("ro", "Read-only file system"),
        ("size=64k", "is on a file system with 0 MiB free, and up to"),
    ] {
        stasis.run(&["mkdir", "-p", &directory])?;
        stasis.run(&["mount", "-t", "tmpfs", "-o", options, "tmpfs", &directory])?;
        let message = tree.checkpoint_fails("small", &[])?;
        assert_contains(&message, &[part]);
        stasis.run(&["umount", &directory])?;
    }
    Ok(())
}

fn programs_are_missing(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    stasis.set("/usr/bin/no-such-runc", "")?;
    let message = tree.checkpoint_fails("missing", &[])?;
    assert_contains(
        &message,
        &[
            "no low-level runtime",
            "/usr/bin/no-such-runc",
            "runtime.path",
        ],
    );
    stasis.set("runc", "")?;
    stasis.run(&["mv", "/usr/sbin/criu", "/usr/sbin/criu.away"])?;
    let message = tree.checkpoint_fails("missing", &[]);
    stasis.run(&["mv", "/usr/sbin/criu.away", "/usr/sbin/criu"])?;
    assert_contains(
        &message?,
        &["[criu]", "criu is not installed", "nothing was changed"],
    );
    Ok(())
}

fn driver_lacks_the_calls(stasis: &StasisHost, tree: &Bundle<'_>) -> Result<()> {
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    stasis.set("runc", &format!("driver.libcuda = \"{libc}\"\n"))?;
    let message = tree.checkpoint_fails("driver", &[])?;
    assert_contains(
        &message,
        &[
            libc,
            "cuCheckpointProcess",
            "driver 570",
            "nothing was changed",
        ],
    );
    stasis.set("runc", "driver.libcuda = \"/no/libcuda.so.1\"\n")?;
    assert_contains(
        &tree.checkpoint_fails("driver", &[])?,
        &["/no/libcuda.so.1", "nothing was changed"],
    );
    Ok(())
}

fn frozen_container_is_frozen_again(stasis: &StasisHost) -> Result<()> {
    let frozen = Bundle::make(stasis, "frozen", &["/bin/counter", "10001"])?;
    frozen.comes_up(10001, "101")?;
    stasis.inject("checkpoint frozen error:801")?;
    frozen.pause()?;
    let message = frozen.checkpoint_fails("frozen", &["--leave-running"])?;
    assert_contains(
        &message,
        &["801", "the container is paused as before, with its GPU"],
    );
    assert_eq!(frozen.status()?, "paused");
    assert!(frozen.runtime(&["resume", "frozen"]).status()?.success());
    assert_eq!(stasis.ask(10001)?.as_deref(), Some("102"));
    stasis.inject("")?;
    frozen.delete()
}

/// A descriptor that CRIU cannot dump, and that the driver does not close.
fn criu_fails_after_the_gpu_checkpoint(stasis: &StasisHost) -> Result<()> {
    let command = [
        "/bin/sh",
        "-c",
        "exec 9</dev/nvidiactl; exec /bin/counter 10002",
    ];
    let undumpable = Bundle::make(stasis, "undumpable", &command)?;
    undumpable.comes_up(10002, "101")?;
    let message = undumpable.checkpoint_fails("dump", &[])?;
    assert_contains(
        &message,
        &[
            "runc checkpoint ended with",
            "CRIU: Error",
            "runs on as before",
        ],
    );
    let log = message
        .split("its log is kept as ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    let log = log
        .map(|path| fs::read_to_string(stasis.path(path)))
        .transpose()?;
    assert_contains(&log.unwrap_or_default(), &["Dumping FAILED"]);
    assert_eq!(stasis.ask(10002)?.as_deref(), Some("102"));
    assert!(!undumpable.image_path("dump/stasis.json").exists());
    undumpable.delete()
}

fn pre_dump_is_refused(stasis: &StasisHost) -> Result<()> {
    let counter = Bundle::make(stasis, "pre", &["/bin/counter", "10003"])?;
    counter.comes_up(10003, "101")?;
    let message = counter.checkpoint_fails("pre", &["--pre-dump"])?;
    assert_contains(
        &message,
        &["refused", "--pre-dump", "counter", "nothing was changed"],
    );
    assert_eq!(stasis.ask(10003)?.as_deref(), Some("102"));
    counter.delete()
}

fn managed_memory_is_left_alone(stasis: &StasisHost) -> Result<()> {
    let managed = Bundle::make(
        stasis,
        "managed",
        &["/bin/memcheck", "16", "10004", "managed"],
    )?;
    managed.comes_up(10004, "ok 0")?;
    let message = managed.checkpoint_fails("managed", &[])?;
    assert_contains(
        &message,
        &["managed-memory", "/dev/nvidia-uvm", "nothing was changed"],
    );
    assert_eq!(stasis.ask(10004)?.as_deref(), Some("ok 1"));
    // If the pre-flight lets it pass, the driver finds it.
    stasis.set("runc", "preflight.allow = [\"managed-memory\"]\n")?;
    let message = managed.checkpoint_fails("managed", &[])?;
    assert_contains(
        &message,
        &["gpu checkpoint of process", "801", "runs on as before"],
    );
    assert_eq!(stasis.ask(10004)?.as_deref(), Some("ok 2"));
    stasis.set("runc", "")?;
    managed.delete()
}
