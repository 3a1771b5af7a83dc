//! How processes look from outside that the driver cannot save, and those that it can.

use anyhow::{Context, Result};
use stasis::blockers::{Scene, find};
use stasis::cuda::Driver;
use stasis::gpu::Inventory;
use stasis::process::ProcessRef;

use super::workload::Workload;
use super::{NVML, driver, library};

/// The names of what is in the way of a checkpoint of a workload.
fn blockers(workload: &Workload) -> Result<Vec<&'static str>> {
    let open = || ProcessRef::open(workload.pid())?.context("the workload has ended");
    let state = driver().state(workload.pid())?;
    let found = find(&Scene {
        processes: &[open()?],
        members: &vec![(open()?, state)],
        inventory: &Inventory::read(library(NVML).as_deref())?,
    })?;
    Ok(found.iter().map(|finding| finding.kind.name()).collect())
}

#[test]
fn managed_memory_shows_in_the_mappings_and_other_memory_does_not() -> Result<()> {
    let counter = Workload::counter()?;
    counter.ask()?;
    assert_eq!(blockers(&counter)?, [""; 0]);
    let memcheck = Workload::memcheck(64)?;
    memcheck.ask()?;
    assert_eq!(blockers(&memcheck)?, [""; 0]);
    let managed = Workload::managed()?;
    managed.ask()?;
    assert_eq!(blockers(&managed)?, ["managed-memory"]);
    Ok(())
}
