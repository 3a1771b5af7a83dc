//! The shim is killed at any step: nothing of the container stays, and it can be made again.

use std::thread::JoinHandle;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use stasis_integration::client::containerd::{Answer, Containerd};
use stasis_integration::container::crash_container::{CrashContainer, answered, checkpoint, start};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// A complete checkpoint, which every crash has to leave as it is.
const GOOD: &str = "/images/good";
/// The directory of the checkpoints that are cut off.
const CUT_OFF: &str = "/images/cut-off";
const ENDED: &str = "exit victim 137";

on_hosts!(crashes: trixie, sid_v2);

fn crashes(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?.through_the_shim()?;
    let containerd = stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    all_moments(&stasis, &client)
        .inspect_err(|_| println!("{}", containerd.log().unwrap_or_default()))
}

fn all_moments(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let victim = CrashContainer::make(stasis, "victim", &["/bin/memcheck", "64", "10000"])?;
    victim.start(client, None)?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 0");
    checkpoint(client, "victim", GOOD, true)?;
    client.delete("victim")?;
    while_it_runs(stasis, client, &victim)?;
    for (call, phase) in [("lock", "lock"), ("checkpoint", "gpu checkpoint")] {
        run(stasis, client, &victim)?;
        stasis.inject(&format!("{call} victim slow:20000"))?;
        kill_in(phase, client, &victim, || {
            victim.begin_checkpoint(client, CUT_OFF)
        })?;
    }
    run(stasis, client, &victim)?;
    kill_in_criu(stasis, "post-dump", "dump", client, &victim, || {
        victim.begin_checkpoint(client, CUT_OFF)
    })?;
    kill_in_criu(
        stasis,
        "post-restore",
        "criu restore",
        client,
        &victim,
        || victim.begin_restore(client, GOOD),
    )?;
    runs_and_ends(stasis, client, &victim)?;
    stasis.inject("restore victim slow:20000")?;
    kill_in("gpu restore", client, &victim, || {
        victim.begin_restore(client, GOOD)
    })?;
    runs_and_ends(stasis, client, &victim)?;
    during_create(client, &victim)?;
    an_operation_is_killed(stasis, client, &victim)?;
    the_good_image_restores(stasis, client, &victim)?;
    without_gpu(stasis, client)
}

/// Starts the container, which proves that nothing prevents it.
fn run(stasis: &StasisHost, client: &Containerd, victim: &CrashContainer<'_>) -> Result<()> {
    stasis.inject("")?;
    victim.start(client, None)?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 0");
    Ok(())
}

fn runs_and_ends(
    stasis: &StasisHost,
    client: &Containerd,
    victim: &CrashContainer<'_>,
) -> Result<()> {
    run(stasis, client, victim)?;
    Ok(victim.end(client)?)
}

fn while_it_runs(
    stasis: &StasisHost,
    client: &Containerd,
    victim: &CrashContainer<'_>,
) -> Result<()> {
    run(stasis, client, victim)?;
    let mut events = client.events()?;
    victim.kill_shim(|| false)?;
    events.until("victim", ENDED)?;
    victim.nothing_left(client)
}

/// Kills the shim in a phase of the operation that `begin` begins.
fn kill_in(
    phase: &str,
    client: &Containerd,
    victim: &CrashContainer<'_>,
    begin: impl FnOnce() -> Result<JoinHandle<Answer<()>>>,
) -> Result<()> {
    killed_in(phase, client, victim, begin, || Ok(()))
}

/// Does the same while CRIU is held at a stage of its work; CRIU goes on right after.
fn kill_in_criu(
    stasis: &StasisHost,
    stage: &str,
    phase: &str,
    client: &Containerd,
    victim: &CrashContainer<'_>,
    begin: impl FnOnce() -> Result<JoinHandle<Answer<()>>>,
) -> Result<()> {
    stasis.hold_criu(stage)?;
    killed_in(phase, client, victim, begin, || stasis.let_criu_go())
}

fn killed_in(
    phase: &str,
    client: &Containerd,
    victim: &CrashContainer<'_>,
    begin: impl FnOnce() -> Result<JoinHandle<Answer<()>>>,
    then: impl FnOnce() -> Result<()>,
) -> Result<()> {
    println!("{phase}");
    let mut events = client.events()?;
    let caller = begin()?;
    victim.in_phase(phase)?;
    victim.kill_shim(|| false)?;
    then()?;
    let answer = answered(caller.join())?;
    ensure!(answer.is_err(), "a killed shim answered: {answer:?}");
    events.until("victim", ENDED)?;
    victim.nothing_left(client)
}

/// containerd does not know the task yet, and no event is sent.
fn during_create(client: &Containerd, victim: &CrashContainer<'_>) -> Result<()> {
    for program in ["containerd-shim", "runc"] {
        println!("create, in {program}");
        victim.without_shim()?;
        let caller = victim.begin(client, |client| start(client, "victim", None))?;
        victim.in_program(program, || caller.is_finished())?;
        victim.kill_shim(|| caller.is_finished())?;
        let _ = answered(caller.join())?;
        victim.can_be_made_again(client)?;
    }
    Ok(())
}

/// The shim lives on and answers its caller, and the next checkpoint takes the process as it is.
fn an_operation_is_killed(
    stasis: &StasisHost,
    client: &Containerd,
    victim: &CrashContainer<'_>,
) -> Result<()> {
    run(stasis, client, victim)?;
    let kill_one = |fault: &str| -> Result<()> {
        stasis.inject(fault)?;
        let caller = victim.begin_checkpoint(client, CUT_OFF)?;
        let operation = victim.in_phase("gpu checkpoint")?;
        kill(
            stasis.host.outside(&operation.to_string())?,
            Signal::SIGKILL,
        )?;
        let answer = answered(caller.join())?;
        println!("of a killed operation: {answer:?}");
        ensure!(answer.is_err(), "a killed operation succeeded");
        Ok(())
    };
    // The next checkpoint waits for the end of that process.
    kill_one("checkpoint victim slow:8000")?;
    stasis.inject("")?;
    checkpoint(client, "victim", CUT_OFF, false)?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 1");
    kill_one("checkpoint victim slow:20000")?;
    victim.end(client)?;
    victim.nothing_left(client)
}

fn the_good_image_restores(
    stasis: &StasisHost,
    client: &Containerd,
    victim: &CrashContainer<'_>,
) -> Result<()> {
    stasis.inject("")?;
    victim.start(client, Some(GOOD))?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    victim.end(client)?;
    victim.nothing_left(client)
}

/// The low-level runtime dies with the shim, since no engine is in between.
fn without_gpu(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    const PLAIN: &str = "/images/plain";
    let script = "/bin/pause & wait";
    let plain = CrashContainer::make(stasis, "plain", &["/bin/sh", "-c", script])?;
    plain.start(client, None)?;
    checkpoint(client, "plain", PLAIN, true)?;
    client.delete("plain")?;
    for stage in ["pre-dump", "post-dump"] {
        plain.start(client, None)?;
        in_plain_criu(stasis, stage, client, &plain, || {
            plain.begin_checkpoint(client, CUT_OFF)
        })?;
    }
    for stage in ["pre-restore", "post-restore", "pre-resume"] {
        in_plain_criu(stasis, stage, client, &plain, || {
            plain.begin_restore(client, PLAIN)
        })?;
    }
    plain.start(client, Some(PLAIN))?;
    plain.end(client)?;
    plain.nothing_left(client)
}

fn in_plain_criu(
    stasis: &StasisHost,
    stage: &str,
    client: &Containerd,
    plain: &CrashContainer<'_>,
    begin: impl FnOnce() -> Result<JoinHandle<Answer<()>>>,
) -> Result<()> {
    println!("plain, {stage}");
    stasis.hold_criu(stage)?;
    let caller = begin()?;
    stasis.until_criu_is_held()?;
    plain.kill_shim(|| false)?;
    stasis.let_criu_go()?;
    let answer = answered(caller.join())?;
    ensure!(answer.is_err(), "a killed shim answered: {answer:?}");
    plain.nothing_left(client)
}
