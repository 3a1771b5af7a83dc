//! Names, and the files behind paths that are read.

use anyhow::{Result, ensure};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::endured;
use super::trial::{Harm, Trial};

/// Names of threads, files, mappings and command lines.
#[test]
fn names_that_act_on_terminals_or_are_no_text() -> Result<()> {
    endured(HostKind::sid_v2()?, "odd-names", Harm::None)
}

/// At the paths of NCCL's settings, which are read for ranks alone, and among the device nodes.
#[test]
fn devices_fifos_and_links_behind_paths() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let trial = Trial::start(stasis, "paths", Harm::ToOthers)?;
    let report = trial.is_looked_at()?;
    let notes = report["notes"].to_string();
    ensure!(notes.contains("was not started with"), "no ranks: {report}");
    trial.endures()
}
