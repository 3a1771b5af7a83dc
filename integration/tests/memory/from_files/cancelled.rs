//! A checkpoint whose caller gives up while contents are stored: the processes have their contents.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Plan, Trace, phase_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::needs;

use super::HOLDS;
use crate::suspended::seen;

/// A script in front of the runtime.
const GATED: &str = "/usr/local/bin/gated-runtime";

#[test]
fn it_ends_at_once() -> Result<()> {
    ends_at_once(HostKind::trixie()?, "")
}

#[test]
fn it_ends_at_once_where_they_become_an_image() -> Result<()> {
    ends_at_once(HostKind::sid_v2()?, IN_MEMORY)
}

fn ends_at_once(kind: HostKind, settings: &str) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let gate = Gate::build(stasis, "runtime", GATED, RUNTIME, "*")?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "48", "10000"])?.through(GATED);
    job.comes_up(10000, "ok 0")?;
    job.checkpoint("first", &["--leave-running"])?;
    ensure!(stasis.ask(10000)?.as_deref() == Some("ok 1"));
    let (before, inventory) = (seen(stasis, &job)?, stasis.inventory()?);
    let message = cancelled_while_it_stores(stasis, &gate, &job)?;
    let says = [
        "a signal asked for it to end",
        "runs on as before, with its GPU",
    ];
    assert_contains(&message, &says);
    ensure!(stasis.ask(10000)?.as_deref() == Some("ok 2"));
    assert_eq!(seen(stasis, &job)?, before);
    assert_eq!(stasis.inventory()?, inventory);
    job.checkpoint("next", &[])?;
    job.restore("next")?;
    ensure!(stasis.ask(10000)?.as_deref() == Some("ok 3"));
    job.delete()
}

/// The storing process is stopped before it has begun, so only the signal can end the checkpoint.
fn cancelled_while_it_stores(
    stasis: &StasisHost,
    gate: &Gate<'_>,
    job: &Bundle<'_>,
) -> Result<String> {
    gate.close()?;
    let checkpoint = job.begin_checkpoint("cancelled", &["--leave-running"])?;
    let held = gate.held(|| false)?.context("no runtime was started")?;
    let script =
        format!("until pkill -STOP -x {HOLDS}; do sleep 0.01; done; pkill -TERM -x stasis-runtime");
    let mut signals = stasis.command("sh");
    signals.args(["-c", &script]);
    let plan = Plan {
        class: Class::Changes,
        // The engine asks it to store.
        at: At::First(Box::new(|hit| {
            let path = hit.call.path.as_deref().and_then(|path| path.to_str());
            hit.phase == "store" && path.is_some_and(|path| path.starts_with("pipe:"))
        })),
        action: Action::Do(Box::new(move |_| {
            ensure!(signals.status()?.success(), "nobody is there");
            Ok(())
        })),
    };
    let traced = Trace::from_start(held, plan, phase_in(job.record()))?.seen()?;
    ensure!(!traced.hits.is_empty(), "not among {:?}", traced.calls);
    let output = checkpoint.wait_with_output()?;
    ensure!(!output.status.success(), "it has succeeded");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}
