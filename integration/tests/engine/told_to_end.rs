//! SIGTERM comes in the middle of a restore without GPU state: the low-level runtime handles it
//! behind stasis as it does when it is called alone.

use std::fs::{self, File};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::faults::call::Class;
use stasis_integration::faults::{Action, At, Gate, Hit, Plan, Trace};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::on_hosts;

/// A path that runc searches before CRIU's own.
const CRIU: &str = "/usr/local/sbin/criu";
/// Sends SIGTERM to the process that was asked for the restore: stasis, or runc itself.
const TELLS: &str = r#"#!/bin/sh
above=$(($(ps -o ppid= -p $PPID)))
[ "$(cat /proc/$above/comm)" = stasis-runtime ] || above=$PPID
[ ! -e /run/told ] && [ "$1" = swrk ] && kill -TERM $above && : >/run/told
exec /usr/sbin/criu "$@"
"#;
/// The exit code of the workload at SIGTERM.
const AT_TERM: i32 = 7;

on_hosts!(restores_go_on: sid, trixie_v2);

fn restores_go_on(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let script =
        format!("trap 'exit {AT_TERM}' TERM; : >/ready; while :; do /bin/pause & wait $!; done");
    let plain = Bundle::make(stasis, "plain", &["/bin/sh", "-c", &script])?;
    plain.change(|spec| spec["linux"]["devices"] = json!([]))?;
    plain.run()?;
    plain.until_ready().context("it would not hear SIGTERM")?;
    plain.checkpoint("image", &[])?;
    plain.delete()?;
    stasis.script(CRIU, TELLS)?;
    let plain = before_runc_is_started(stasis, plain)?;
    let mut plain = plain;
    for program in ["runc", RUNTIME] {
        plain = plain.through(program);
        detached(stasis, &plain).with_context(|| format!("{program}, detached"))?;
        attached(stasis, &plain).with_context(|| format!("{program}, attached"))?;
    }
    stasis.nothing_to_put_right()
}

/// No process would pass on a signal that comes while stasis itself works: nothing is begun then.
fn before_runc_is_started<'l>(stasis: &'l StasisHost, plain: Bundle<'l>) -> Result<Bundle<'l>> {
    let gate = Gate::build(
        stasis,
        "told",
        "/usr/local/bin/gated",
        RUNTIME,
        "*' restore '*",
    )?;
    let plain = plain.through(&gate.path);
    let (image, bundle) = (plain.image("image"), plain.directory());
    let paths = ["--image-path", &image, "--bundle", &bundle];
    for mode in [&["--detach"][..], &[]] {
        gate.close()?;
        let mut restore = plain.operation(&[&["restore"], mode, &paths].concat())?;
        let mut restore = restore.arg(&plain.id).stderr(Stdio::null()).spawn()?;
        let held = gate.held(|| false)?.context("it was not started")?;
        let program = held.pid;
        let records = |hit: &Hit| {
            let path = hit.call.path.as_deref();
            path.is_some_and(|path| path.to_string_lossy().contains("undo.json"))
        };
        let plan = Plan {
            class: Class::Changes,
            at: At::First(Box::new(records)),
            action: Action::Do(Box::new(move |_| Ok(kill(program, Signal::SIGTERM)?))),
        };
        let seen = Trace::from_start(held, plan, Box::new(String::new))?.seen()?;
        ensure!(!seen.hits.is_empty(), "it recorded nothing");
        ensure!(!restore.wait()?.success(), "it went on");
        let failure = plain.failure()?.context("it reports nothing")?;
        assert_eq!(
            (failure.kind, failure.state),
            (Some(Kind::Cancelled), Some(State::Ended))
        );
        assert_contains(&failure.message, &["nothing had been restored yet"]);
        assert_eq!(plain.status()?, "");
    }
    Ok(plain)
}

/// The restored container gets no signal: its caller has not seen it.
fn detached(stasis: &StasisHost, plain: &Bundle<'_>) -> Result<()> {
    plain.restore("image")?;
    was_told(stasis)?;
    assert_eq!(plain.status()?, "running");
    plain.delete()
}

/// The signal is for the container, which gets it once it runs.
fn attached(stasis: &StasisHost, plain: &Bundle<'_>) -> Result<()> {
    let (image, bundle) = (plain.image("image"), plain.directory());
    let work = format!("{bundle}/work");
    let from = ["--image-path", &image, "--work-path", &work];
    let mut restore = plain.runtime(&["restore"]);
    restore.args(from).args(["--bundle", &bundle, &plain.id]);
    let said = stasis.path("/run/said");
    let status = restore.stderr(File::create(&said)?).status()?;
    was_told(stasis)?;
    let said = fs::read_to_string(said)?;
    ensure!(status.code() == Some(AT_TERM), "{status}: {said}");
    plain.delete()
}

fn was_told(stasis: &StasisHost) -> Result<()> {
    let told = stasis.path("/run/told");
    ensure!(told.exists(), "no signal was sent");
    Ok(fs::remove_file(told)?)
}
