//! Signals, tracers, and processes without end.

use anyhow::{Result, bail};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{Cgroups, HostKind};
use stasis_integration::needs;

use super::trial::{Harm, Outcome, Trial};

endured! {
    fn a_flood_of_signals(trixie, "signals", ToOthers);
    fn a_process_that_is_stopped_and_let_go_on(sid_v2, "stops", ToOthers);
    fn a_tracer_in_the_container(trixie, "tracer", ToOthers);
}

/// CRIU would take the process for a zombie, and end it with the others.
#[test]
fn a_main_thread_that_has_ended() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let trial = Trial::start(stasis, "main-thread-ended", Harm::ToOthers)?;
    stasis.set(
        &stasis.low_level,
        "preflight.allow = [\"main-thread-ended\"]\n",
    )?;
    let refused = trial.checkpoint("refused", &[])?;
    let Outcome::Refused(failure) = refused else {
        bail!("{refused:?}");
    };
    let parts = [
        "main-thread-ended: ",
        "(hostile): its first thread has ended",
    ];
    assert_contains(&failure.message, &parts);
    let report = trial.is_looked_at()?;
    let kind = &report["blockers"][0]["kind"];
    assert_eq!(kind, "main-thread-ended", "{report}");
    trial.endures()
}

/// As many processes as `pids.max` allows, if a host has that controller.
#[test]
fn a_fork_bomb() -> Result<()> {
    let kind = HostKind::trixie()?;
    if kind.cgroups == Cgroups::V2 {
        needs!(HybridCgroups);
    }
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let bounded = |spec: &mut serde_json::Value| {
        spec["linux"]["resources"]["pids"] = json!({ "limit": 64 });
    };
    Trial::start_with(stasis, "fork-bomb", Harm::ToOthers, bounded)?.endures()
}
