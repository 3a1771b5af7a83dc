//! Contents that are loaded from disk while CRIU and the driver restore their processes.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::ON_DISK;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Plan, Trace, phase_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::needs;

use super::HOLDS;

/// A script in front of the runtime.
const GATED: &str = "/usr/local/bin/gated-runtime";
/// The process that directs the driver's calls to our code.
const COPIER: &str = "stasis-gpu-copy";

/// Whichever of them is slow, or dies, the restored contents are right, or nothing is restored.
#[test]
fn whoever_is_late_or_killed() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    stasis.set(&stasis.low_level, ON_DISK)?;
    let gate = &Gate::build(stasis, "runtime", GATED, RUNTIME, "*")?;
    let job = &Bundle::make(stasis, "job", &["/bin/memcheck", "256", "10000"])?.through(GATED);
    job.comes_up(10000, "ok 0")?;
    job.checkpoint("image", &[])?;
    let restored = |answer: &str| -> Result<()> {
        ensure!(stasis.ask_until_up(10000)? == answer);
        job.checkpoint("image", &[])
    };
    for (answer, late) in [("ok 1", HOLDS), ("ok 2", COPIER)] {
        let status = met(stasis, gate, job, late, Signal::SIGCONT)?;
        ensure!(status.is_none(), "{late} is late: {status:?}");
        restored(answer).with_context(|| format!("{late} was late"))?;
    }
    let message = met(stasis, gate, job, HOLDS, Signal::SIGKILL)?;
    let message = message.context("it is restored without its contents")?;
    let says = [
        "GPU contents",
        "has ended, or was killed",
        "what had been restored was ended",
    ];
    assert_contains(&message, &says);
    stasis.nothing_to_put_right()?;
    let message = met(stasis, gate, job, COPIER, Signal::SIGKILL)?;
    ensure!(message.is_none(), "who copies was killed: {message:?}");
    restored("ok 3")?;
    job.restore("image")?;
    ensure!(stasis.ask_until_up(10000)? == "ok 4");
    job.delete()
}

/// Begins a restore in which this process is stopped as soon as it exists, and gets a signal half a
/// second later. Returns the message if the restore fails.
fn met(
    stasis: &StasisHost,
    gate: &Gate<'_>,
    job: &Bundle<'_>,
    name: &str,
    signal: Signal,
) -> Result<Option<String>> {
    gate.close()?;
    let phase = match name {
        HOLDS => "load",
        _ => "gpu restore",
    };
    let stop = format!("until pkill -STOP -x {name}; do sleep 0.01; done");
    let mut stops = stasis.command("sh");
    stops.args(["-c", &stop]);
    let mut goes_on = stasis.command("pkill");
    goes_on.args([format!("-{signal}").as_str(), "-x", name]);
    let plan = Plan {
        class: Class::Changes,
        // The process has been started, and is put into a cgroup of its own.
        at: At::First(Box::new(move |hit| {
            let path = hit.call.path.as_deref();
            hit.phase == phase && path.is_some_and(|path| path.ends_with("cgroup.procs"))
        })),
        action: Action::Do(Box::new(move |_| {
            ensure!(stops.status()?.success(), "nobody is there");
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(500));
                goes_on.status()
            });
            Ok(())
        })),
    };
    let mut restore = job.begin_restore("image")?;
    let held = gate.held(|| false)?.context("no runtime was started")?;
    let traced = Trace::from_start(held, plan, phase_in(job.record()))?.seen()?;
    ensure!(!traced.hits.is_empty(), "not among {:?}", traced.calls);
    match restore.wait()?.success() {
        true => Ok(None),
        false => Ok(Some(job.message()?.unwrap_or_default())),
    }
}
