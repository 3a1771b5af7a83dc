//! Signals, tracers, and processes without end.

use anyhow::Result;
use serde_json::json;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{Cgroups, HostKind};
use stasis_integration::needs;

use super::endured;
use super::trial::{Harm, Trial};

#[test]
fn a_flood_of_signals() -> Result<()> {
    endured(HostKind::trixie()?, "signals", Harm::ToOthers)
}

#[test]
fn a_process_that_is_stopped_and_let_go_on() -> Result<()> {
    endured(HostKind::sid_v2()?, "stops", Harm::ToOthers)
}

#[test]
fn a_tracer_in_the_container() -> Result<()> {
    endured(HostKind::trixie()?, "tracer", Harm::ToOthers)
}

/// As many as `pids.max` allows, where a host has that controller.
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
