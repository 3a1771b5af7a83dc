//! An operation is killed when the process that surveys its ranks begins to trace the first of
//! them, which it has not stopped, and has no record of.

use std::fs;
use std::process::Child;
use std::sync::mpsc::channel;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Hit, Plan, Trace, Traced, phase_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::{needs, on_hosts};

use crate::ranks::nothing_is_left;

const PORT: u16 = 10301;
/// A script in front of the runtime.
const GATED: &str = "/usr/local/bin/gated-runtime";
/// The first such process of a checkpoint surveys, if the driver alone copies GPU contents.
const SURVEYS: &str = "stasis-gpu-copy";
const DRIVER_COPIES: &str = "gpu_checkpoint.path = \"driver\"\n";
/// The directory with the records of code of ours.
const RECORDS: &str = "gpu-copies";
/// How often a keeper sleeps that leaves the ranks alone. One that unlocks them soon ends.
const LOOKS: u32 = 100;

on_hosts!(all_cases: sid);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, DRIVER_COPIES)?;
    stasis.inject("gpus 2")?;
    let gate = &Gate::build(stasis, "runtime", GATED, RUNTIME, "*")?;
    let job = Bundle::make(stasis, "sharing", &["/bin/sharing", "10301", "2"])?.through(GATED);
    job.give(&[0, 1])?;
    job.comes_up(PORT, "101 101")?;
    // A job's first checkpoint tries the driver, which starts such processes, too.
    job.checkpoint("tried", &["--leave-running"])?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("102 102"));

    let surveying = killed_when_it_surveys(gate, &job)?;
    until_it_has_looked(stasis, &stasis.until_kept()?)?;
    let records = stasis.records()?;
    kill(surveying, Signal::SIGCONT)?;
    ensure!(
        !records.is_empty(),
        "the ranks were unlocked beside their survey"
    );
    stasis.nothing_to_put_right()?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("103 103"));
    the_survey_is_killed(stasis, gate, &job)?;
    job.delete()
}

/// Waits until a keeper has looked often, or is gone: it sleeps between two looks.
fn until_it_has_looked(stasis: &StasisHost, keeper: &str) -> Result<()> {
    let status = stasis.path(format!("/proc/{keeper}/status"));
    let slept = || {
        let status = fs::read_to_string(&status).ok()?;
        let count = status.split_once("\nvoluntary_ctxt_switches:")?.1;
        count.lines().next()?.trim().parse::<u32>().ok()
    };
    let first = slept();
    wait_until_clear(|| {
        let more = slept().zip(first).map(|(now, first)| now - first);
        Ok(more
            .filter(|more| *more < LOOKS)
            .map(|more| format!("{more} looks")))
    })
}

/// The operation lives, and unlocks the ranks: by then nothing of the survey is left in them. The
/// process is killed when one of them has no code of ours any more.
fn the_survey_is_killed(stasis: &StasisHost, gate: &Gate<'_>, job: &Bundle<'_>) -> Result<()> {
    let removes_record = |hit: &Hit| {
        let path = hit.call.path.clone().unwrap_or_default();
        let name = path.file_name().unwrap_or_default();
        let is_pid = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let is_record = is_pid && path.parent().is_some_and(|of| of.ends_with(RECORDS));
        is_record && hit.call.name.starts_with("unlink")
    };
    let (checkpoint, seen) = checkpoint(gate, job, |_| Plan {
        class: Class::Changes,
        at: At::First(Box::new(removes_record)),
        action: Action::Kill,
    })?;
    ensure!(!seen.hits.is_empty(), "not among {:?}", seen.calls);
    let output = checkpoint.wait_with_output()?;
    ensure!(!output.status.success(), "it was made");
    nothing_is_left(stasis)?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("104 104"));
    Ok(())
}

/// Stops the surveying process, and kills the operation.
fn killed_when_it_surveys(gate: &Gate<'_>, job: &Bundle<'_>) -> Result<Pid> {
    let (found, surveying) = channel();
    let (mut checkpoint, seen) = checkpoint(gate, job, |operation| Plan {
        class: Class::Tracing,
        at: At::Number(1),
        action: Action::Do(Box::new(move |process| {
            kill(process, Signal::SIGSTOP)?;
            kill(operation, Signal::SIGKILL)?;
            Ok(found.send(process)?)
        })),
    })?;
    ensure!(!seen.hits.is_empty(), "not among {:?}", seen.calls);
    checkpoint.wait()?;
    Ok(surveying.recv()?)
}

/// Makes a checkpoint, by this process, of which the surveying process meets the plan.
fn checkpoint(
    gate: &Gate<'_>,
    job: &Bundle<'_>,
    plan: impl FnOnce(Pid) -> Plan,
) -> Result<(Child, Traced)> {
    gate.close()?;
    let checkpoint = job.begin_checkpoint("cut-off", &["--leave-running"])?;
    let held = gate.held(|| false)?.context("no runtime was started")?;
    let (plan, phase) = (plan(held.pid), phase_in(job.record()));
    let seen = Trace::of_descendant(held, &[SURVEYS], plan, phase)?.seen()?;
    Ok((checkpoint, seen))
}
