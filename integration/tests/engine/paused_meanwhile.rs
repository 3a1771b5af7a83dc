//! A container that another program pauses while it is being checkpointed.

use std::fs;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Hit, Plan, Trace, phase_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::{needs, on_hosts};

/// A script in front of the runtime.
const GATED: &str = "/usr/local/bin/gated-runtime";

on_hosts!(it_stays_paused_if_that_fails: trixie, sid_v2);

fn it_stays_paused_if_that_fails(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let gate = Gate::build(stasis, "runtime", GATED, RUNTIME, "*")?;
    let counter = Bundle::make(stasis, "counter", &["/bin/counter", "10000"])?.through(GATED);
    counter.comes_up(10000, "101")?;
    paused_by_somebody_else(&gate, &counter)?;
    assert_eq!(counter.status()?, "paused");
    assert_eq!(stasis.records()?, "", "nothing is left to put right");
    not_paused_again_at_once(stasis, &gate, &counter)?;
    wait_until_clear(|| Ok(Some(stasis.records()?).filter(|left| !left.is_empty())))?;
    assert_eq!(counter.status()?, "paused");
    counter.resume()?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    counter.delete()
}

/// Paused between two calls of the driver, which gives no answer for a paused process.
fn paused_by_somebody_else(gate: &Gate<'_>, counter: &Bundle<'_>) -> Result<()> {
    let mut pause = counter.runtime(&["pause", "counter"]);
    let new = counter.record().join(".intent.json.new");
    let plan = Plan {
        class: Class::Changes,
        at: At::First(Box::new(move |hit| {
            hit.phase == "lock" && is_of(hit, "rename", "intent.json")
        })),
        // The record of the locked processes cannot be written then.
        action: Action::Do(Box::new(move |_| {
            ensure!(pause.status()?.success(), "it cannot be paused");
            Ok(fs::remove_file(new)?)
        })),
    };
    let message = fails(gate, counter, "image", plan)?;
    assert_contains(&message, &["intent.json", "the container is paused"]);
    Ok(())
}

/// The container is paused, thawed for the driver's answers, and its checkpoint then refused.
fn not_paused_again_at_once(
    stasis: &StasisHost,
    gate: &Gate<'_>,
    counter: &Bundle<'_>,
) -> Result<()> {
    // The fault shows only when the image is begun: until then no directory is made.
    let image = counter.image("nowhere");
    stasis.run(&["ln", "-s", "/nowhere/at/all", &image])?;
    let mut written = 0;
    let plan = Plan {
        class: Class::Changes,
        at: At::First(Box::new(move |hit| {
            written += u32::from(is_of(hit, "write", "cgroup.freeze"));
            written += u32::from(is_of(hit, "write", "freezer.state"));
            written == 2
        })),
        action: Action::Fail(Errno::EIO),
    };
    let message = fails(gate, counter, "nowhere", plan)?;
    let says = [
        "[image-directory]",
        "a process of stasis tries to pause it again",
    ];
    assert_contains(&message, &says);
    Ok(())
}

/// Returns the message of a checkpoint that fails by a plan.
fn fails(gate: &Gate<'_>, counter: &Bundle<'_>, image: &str, plan: Plan) -> Result<String> {
    gate.close()?;
    let checkpoint = counter.begin_checkpoint(image, &["--leave-running"])?;
    let held = gate.held(|| false)?.context("no runtime was started")?;
    let seen = Trace::from_start(held, plan, phase_in(counter.record()))?.seen()?;
    ensure!(!seen.hits.is_empty(), "not among {:?}", seen.calls);
    let output = checkpoint.wait_with_output()?;
    ensure!(!output.status.success(), "it has succeeded");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn is_of(hit: &Hit, call: &str, file: &str) -> bool {
    let path = hit.call.path.as_deref();
    hit.call.name.starts_with(call) && path.is_some_and(|path| path.ends_with(file))
}
