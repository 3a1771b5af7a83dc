//! A container whose GPU the operator has freed stays off the GPU, whatever the outcome of its
//! checkpoint: another process may have filled the GPU, and the driver loses a process that finds
//! no room.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10230;

on_hosts!(all_cases: sid_v2, trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let parked = Bundle::make(stasis, "parked", &["/bin/memcheck", "32", "10230"])?;
    // Room for one of the two.
    stasis.inject("memory 120")?;
    parked.comes_up(PORT, "ok 0")?;
    cuda_checkpoint(stasis, &["--toggle"])?;
    let other = Bundle::make(stasis, "other", &["/bin/memcheck", "16", "10231"])?;
    other.comes_up(10231, "ok 0")?;
    let cases: [(&str, Case); 5] = [
        ("left running", a_checkpoint_leaves_it_suspended),
        ("failed", a_failed_checkpoint_leaves_it_suspended),
        ("paused", a_resume_leaves_it_suspended),
        ("killed", a_killed_checkpoint_leaves_it_suspended),
        ("killed, resumed", a_resume_after_a_kill_leaves_it_suspended),
    ];
    for (name, case) in cases {
        case(stasis, &parked).context(name)?;
        is_suspended(stasis, &parked).context(name)?;
        assert_eq!(parked.status()?, "running", "after {name}");
    }
    other.delete()?;
    cuda_checkpoint(stasis, &["--toggle"])?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    assert_eq!(stasis.records()?, "", "nothing is left to put right");
    parked.delete()?;
    // The image has the contents from host memory, and its restore needs room like any other.
    parked.restore("left-running")?;
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    parked.delete()
}

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

fn a_checkpoint_leaves_it_suspended(_: &StasisHost, parked: &Bundle<'_>) -> Result<()> {
    parked.checkpoint("left-running", &["--leave-running"])
}

fn a_failed_checkpoint_leaves_it_suspended(stasis: &StasisHost, parked: &Bundle<'_>) -> Result<()> {
    let directory = parked.image("small");
    stasis.run(&["mkdir", "-p", &directory])?;
    let mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"];
    stasis.run(&[&mount[..], &[&directory]].concat())?;
    let message = parked.checkpoint_fails("small", &[])?;
    assert_contains(&message, &["refused [no-space]", "nothing was changed"]);
    stasis.set("runc", "preflight.disk_space = \"ignore\"\n")?;
    let message = parked.checkpoint_fails("small", &[])?;
    stasis.set("runc", "")?;
    stasis.run(&["umount", &directory])?;
    assert_contains(&message, &["is full", "the container runs on as before"]);
    assert!(!message.contains("with its GPU"), "{message}");
    Ok(())
}

fn a_resume_leaves_it_suspended(_: &StasisHost, parked: &Bundle<'_>) -> Result<()> {
    parked.pause()?;
    parked.checkpoint("paused", &["--leave-running"])?;
    assert_eq!(parked.status()?, "paused");
    parked.resume()
}

fn a_killed_checkpoint_leaves_it_suspended(stasis: &StasisHost, parked: &Bundle<'_>) -> Result<()> {
    kill_a_checkpoint(stasis, parked)?;
    parked.checkpoint("after", &["--leave-running"])
}

fn a_resume_after_a_kill_leaves_it_suspended(
    stasis: &StasisHost,
    parked: &Bundle<'_>,
) -> Result<()> {
    kill_a_checkpoint(stasis, parked)?;
    // The killed checkpoint has found the container running.
    wait_until_clear(|| {
        let keepers = stasis.keepers();
        Ok((!keepers.is_empty()).then_some(keepers))
    })?;
    parked.pause()?;
    parked.resume()
}

/// Kills the engine when it starts the low-level runtime, which then does nothing.
fn kill_a_checkpoint(stasis: &StasisHost, parked: &Bundle<'_>) -> Result<()> {
    const KILLER: &str = "/usr/local/bin/as-found-killer";
    const SCRIPT: &str = "#!/bin/sh\ncase \" $* \" in *\" checkpoint \"*) kill -9 $PPID; exit;; esac\nexec runc \"$@\"\n";
    stasis.script(KILLER, SCRIPT)?;
    stasis.set(KILLER, "runtime.flavor = \"runc\"\n")?;
    let mut operation = parked.begin_checkpoint("killed", &["--leave-running"])?;
    ensure!(!operation.wait()?.success(), "it was not killed");
    stasis.set("runc", "")
}

/// Checks that the GPU contents are in host memory, and that their record waits for the operator.
fn is_suspended(stasis: &StasisHost, parked: &Bundle<'_>) -> Result<()> {
    let states = cuda_checkpoint(stasis, &["--get-state"])?;
    assert!(states.ends_with(" checkpointed\n"), "{states}");
    let record = fs::read(parked.record().join("intent.json"))?;
    let record: Value = serde_json::from_slice(&record)?;
    let members = record["members"].as_array().context("no members")?;
    assert_eq!(members.len(), 1, "{record}");
    assert_eq!(members[0]["pending_on"], "operator", "{record}");
    Ok(())
}

fn cuda_checkpoint(stasis: &StasisHost, operation: &[&str]) -> Result<String> {
    let container = ["--container", "parked", "--root", ROOT];
    let mut command = stasis.command(CUDA_CHECKPOINT);
    let output = command.args(operation).args(container).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{operation:?}: {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
