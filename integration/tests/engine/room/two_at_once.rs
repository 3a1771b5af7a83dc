//! Two containers that do not both fit are brought back at the same time.

use std::process::{Child, Command, Output};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

use super::{
    MEMORY, PORTS, nothing_is_reserved, rubbish_in_the_ledger, state, suspend, toggle,
    two_suspended,
};

on_hosts!(all_cases: sid_v2, trixie);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    rubbish_in_the_ledger(stasis)?;
    let containers = &two_suspended(stasis)?;
    // The GPU has room for either when the second looks: the first one's driver call is held.
    stasis.set(&stasis.low_level, "deadlines.room_s = 1\n")?;
    let toggle = |container: &Bundle<'_>| toggle(stasis, container);
    at_once(stasis, containers, &toggle).context("toggle")?;
    both_are_killed(stasis, containers).context("killed")?;
    paused_both(stasis, containers)?;
    resumed_at_once(stasis, containers).context("resume")?;
    a_restore_counts_as_well(stasis, containers).context("restore")?;
    stasis.set(&stasis.low_level, "")?;
    who_waits_is_let_in(stasis, containers).context("waiting")?;
    nothing_is_reserved(stasis)
}

type BringBack<'b> = &'b dyn Fn(&Bundle<'_>) -> Command;

/// The first comes back, and the second is refused and comes back when there is room.
fn at_once(
    stasis: &StasisHost,
    [first, second]: &[Bundle<'_>; 2],
    bring_back: BringBack<'_>,
) -> Result<()> {
    let held = begin_held(stasis, first, bring_back)?;
    let refused = bring_back(second).output()?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success(), "both were let in");
    assert_contains(
        &text,
        &[
            "[no-gpu-memory]",
            "has 120 MiB free, of which operations on first (process ",
            "have reserved 97 MiB",
            "needs 97 MiB",
        ],
    );
    let output = let_go(stasis, held)?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{error}");
    answers(stasis, PORTS[0], 1)?;
    suspend(stasis, first)?;
    ensure!(bring_back(second).output()?.status.success());
    answers(stasis, PORTS[1], 1)?;
    suspend(stasis, second)
}

/// The room stays reserved until a recovery: the driver may be about to take it.
fn both_are_killed(stasis: &StasisHost, [first, second]: &[Bundle<'_>; 2]) -> Result<()> {
    let mut held = begin_held(stasis, first, &|container| toggle(stasis, container))?;
    stasis.kill_keepers()?;
    stasis.run(&["pkill", "-KILL", "-x", "cuda-checkpoint"])?;
    held.wait()?;
    let refused = toggle(stasis, second).output()?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success(), "the second was let in");
    assert_contains(&text, &["[no-gpu-memory]", "operations on first (process "]);
    stasis.let_driver_go("step")?;
    stasis.inject(MEMORY)?;
    stasis.run(&[PROGRAM, "recover", "first"])?;
    ensure!(state(stasis, first)? == "running");
    suspend(stasis, first)?;
    ensure!(toggle(stasis, second).output()?.status.success());
    suspend(stasis, second)
}

fn begin_held(
    stasis: &StasisHost,
    container: &Bundle<'_>,
    bring_back: BringBack<'_>,
) -> Result<Child> {
    stasis.hold_driver(&format!("{MEMORY}\nrestore {}", container.id), "step")?;
    let child = bring_back(container).spawn()?;
    stasis.until_driver_is_called()?;
    Ok(child)
}

fn let_go(stasis: &StasisHost, held: Child) -> Result<Output> {
    stasis.let_driver_go("step")?;
    let output = held.wait_with_output()?;
    stasis.inject(MEMORY)?;
    Ok(output)
}

fn answers(stasis: &StasisHost, port: u16, count: u32) -> Result<()> {
    let answer = stasis.ask(port)?.unwrap_or_default();
    ensure!(answer == format!("ok {count}"), "{answer}");
    Ok(())
}

/// Takes both from suspended by the operator to paused after a checkpoint.
fn paused_both(stasis: &StasisHost, containers: &[Bundle<'_>; 2]) -> Result<()> {
    for container in containers {
        suspend(stasis, container)?;
        container.pause()?;
        container.checkpoint("paused", &["--leave-running"])?;
        ensure!(container.status()? == "paused");
    }
    Ok(())
}

/// A caller may resume only once: the second goes on without its GPU until there is room.
fn resumed_at_once(stasis: &StasisHost, [first, second]: &[Bundle<'_>; 2]) -> Result<()> {
    let resume = |container: &Bundle<'_>| container.runtime(&["resume", &container.id]);
    let held = begin_held(stasis, first, &resume)?;
    second.resume()?;
    ensure!(second.status()? == "running");
    let notes = stasis.operation("resume")?["notes"].to_string();
    assert_contains(&notes, &["operations on first (process", "needs 97 MiB"]);
    ensure!(let_go(stasis, held)?.status.success());
    answers(stasis, PORTS[0], 2)?;
    ensure!(state(stasis, second)? == "checkpointed");
    suspend(stasis, first)?;
    wait_until_clear(|| {
        // A process of which its keeper borrows a thread does not answer.
        let now = state(stasis, second).unwrap_or_else(|error| error.to_string());
        Ok((now != "running").then_some(now))
    })?;
    answers(stasis, PORTS[1], 2)?;
    suspend(stasis, second)
}

/// A resume finds the room reserved for a restore, whose driver call is to come.
fn a_restore_counts_as_well(stasis: &StasisHost, [first, second]: &[Bundle<'_>; 2]) -> Result<()> {
    first.delete()?;
    stasis.hold_driver(&format!("{MEMORY}\nrestore first"), "step")?;
    let mut restore = first.begin_restore("paused")?;
    stasis.until_driver_is_called()?;
    let refused = toggle(stasis, second).output()?;
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_contains(&text, &["operations on first (process", "nothing was done"]);
    stasis.let_driver_go("step")?;
    ensure!(restore.wait()?.success());
    stasis.inject(MEMORY)?;
    ensure!(state(stasis, second)? == "checkpointed");
    answers(stasis, PORTS[0], 2)
}

/// With patience the second gets the room that the first gives up: here, since the first is killed.
fn who_waits_is_let_in(stasis: &StasisHost, [first, second]: &[Bundle<'_>; 2]) -> Result<()> {
    suspend(stasis, first)?;
    let held = begin_held(stasis, first, &|container| toggle(stasis, container))?;
    let waits = toggle(stasis, second).spawn()?;
    // The second one's first look has to come before the first one is over.
    let begun = second.record().join("undo.json");
    wait_until_clear(|| Ok((!begun.exists()).then(|| "the second has not begun".to_owned())))?;
    first.runtime(&["kill", "first", "KILL"]).output()?;
    let _ = let_go(stasis, held)?;
    let output = waits.wait_with_output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{error}");
    answers(stasis, PORTS[1], 3)?;
    first.delete()?;
    second.delete()
}
