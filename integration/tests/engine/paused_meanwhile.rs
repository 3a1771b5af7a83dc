//! A container that somebody pauses while it is being checkpointed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use stasis::operation::progress::UnderWay;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Hit, Plan, Trace};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::{needs, on_hosts};

/// A script before the runtime.
const GATED: &str = "/usr/local/bin/gated-runtime";

on_hosts!(it_stays_paused_if_that_fails: trixie, sid_v2);

fn it_stays_paused_if_that_fails(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::of(kind)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    let gate = Gate::build(stasis, "runtime", GATED, RUNTIME, "*")?;
    let counter = Bundle::make(stasis, "counter", &["/bin/counter", "10000"])?.through(GATED);
    counter.run()?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    gate.close()?;
    let checkpoint = counter.begin_checkpoint("image", &["--leave-running"])?;
    let held = gate.held(|| false)?.context("no runtime was started")?;
    let mut pause = counter.runtime(&["pause", "counter"]);
    let new = counter.record().join(".intent.json.new");
    let plan = Plan {
        class: Class::Changes,
        at: At::First(records_who_is_locked),
        // Between two calls of the driver, which answers nothing for a paused process. The record
        // cannot be written then.
        action: Action::Do(Box::new(move || {
            ensure!(pause.status()?.success(), "it cannot be paused");
            Ok(fs::remove_file(new)?)
        })),
    };
    let seen = Trace::from_start(held, plan, phase_in(counter.record()))?.seen()?;
    ensure!(!seen.hits.is_empty(), "nobody was locked: {:?}", seen.calls);
    let output = checkpoint.wait_with_output()?;
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert_contains(&message, &["intent.json", "the container is paused"]);
    assert_eq!(counter.status()?, "paused");
    assert_eq!(stasis.records()?, "", "nothing is left to put right");
    counter.resume()?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    counter.delete()
}

fn records_who_is_locked(hit: &Hit) -> bool {
    let path = hit.call.path.as_deref().unwrap_or(Path::new(""));
    hit.phase == "lock" && hit.call.name.starts_with("rename") && path.ends_with("intent.json")
}

fn phase_in(record: PathBuf) -> Box<dyn Fn() -> String + Send> {
    Box::new(move || match UnderWay::read(&record) {
        Ok(Some(under_way)) => under_way.phase,
        _ => String::new(),
    })
}
