//! An operation is killed when the process that surveys its ranks begins to trace the first of
//! them, which it has not stopped, and has no record of.

use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Plan, Trace, phase_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::{needs, on_hosts};

const PORT: u16 = 10301;
/// A script in front of the runtime.
const GATED: &str = "/usr/local/bin/gated-runtime";
/// The first such process of a checkpoint surveys, if the driver alone copies GPU contents.
const SURVEYS: &str = "stasis-gpu-copy";
const DRIVER_COPIES: &str = "gpu_checkpoint.path = \"driver\"\n";
/// How long a keeper is given to unlock what it must not: it takes some milliseconds.
const TEMPTED: Duration = Duration::from_secs(2);

on_hosts!(all_cases: sid);

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, DRIVER_COPIES)?;
    stasis.inject("gpus 2")?;
    let gate = &Gate::build(stasis, "runtime", GATED, RUNTIME, "*")?;
    let job = Bundle::make(stasis, "sharing", &["/bin/sharing", "10301", "2"])?.through(GATED);
    job.give(&[0, 1])?;
    job.run()?;
    ensure!(stasis.ask_until_up(PORT)? == "101 101");
    // A job's first checkpoint tries the driver, which starts such processes, too.
    job.checkpoint("tried", &["--leave-running"])?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("102 102"));

    let surveying = killed_when_it_surveys(gate, &job)?;
    wait_until_clear(|| {
        let keepers = stasis.keepers();
        Ok(keepers.is_empty().then(|| "no keeper".to_owned()))
    })?;
    sleep(TEMPTED);
    let records = stasis.records()?;
    kill(surveying, Signal::SIGCONT)?;
    ensure!(
        !records.is_empty(),
        "the ranks were unlocked beside their survey"
    );
    stasis.nothing_to_put_right()?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("103 103"));
    job.delete()
}

/// Stops the surveying process, and kills the operation.
fn killed_when_it_surveys(gate: &Gate<'_>, job: &Bundle<'_>) -> Result<Pid> {
    gate.close()?;
    let mut checkpoint = job.begin_checkpoint("cut-off", &["--leave-running"])?;
    let held = gate.held(|| false)?.context("no runtime was started")?;
    let (found, surveying) = channel();
    let operation = held.pid;
    let plan = Plan {
        class: Class::Tracing,
        at: At::Number(1),
        action: Action::Do(Box::new(move |process| {
            kill(process, Signal::SIGSTOP)?;
            kill(operation, Signal::SIGKILL)?;
            Ok(found.send(process)?)
        })),
    };
    let phase = phase_in(job.record());
    let seen = Trace::of_descendant(held, &[SURVEYS], plan, phase)?.seen()?;
    ensure!(!seen.hits.is_empty(), "not among {:?}", seen.calls);
    checkpoint.wait()?;
    Ok(surveying.recv()?)
}
