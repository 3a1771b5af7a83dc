//! How processes that the driver can or cannot save look from outside.

use crate::by_pid::ByPid;
use anyhow::{Context, Result};
use stasis_engine::preflight::sharing::Sharing;
use stasis_engine::preflight::sharing::peer_access::PeerAccess;
use stasis_engine::preflight::{ContainerFacts, find};
use stasis_integration::needs;
use stasis_linux::{ProcessRef, Snapshot};

use super::caller::{blockers_of, inventory};
use super::driver;
use super::gpus::TWO;
use super::workload::Workload;

/// Returns the names of the blockers of a checkpoint of a process.
pub(crate) fn names(pid: i32) -> Result<String> {
    let process = ProcessRef::open(pid)?.context("the workload has ended")?;
    let state = driver().state(pid)?;
    let found = find(&ContainerFacts {
        snapshot: &Snapshot::take(&process, &[pid].into())?,
        members: &vec![(process, state)],
        inventory: &inventory()?,
        sharing: Sharing::Guessed(PeerAccess::Unknown),
        asked: None,
    })?;
    let names: Vec<_> = found.iter().map(|finding| finding.kind.name()).collect();
    Ok(names.join(" "))
}

#[test]
fn managed_memory_shows_in_the_mappings_and_other_memory_does_not() -> Result<()> {
    let counter = Workload::counter()?;
    counter.ask()?;
    assert_eq!(names(counter.pid())?, "");
    let memcheck = Workload::memcheck(64)?;
    memcheck.ask()?;
    assert_eq!(names(memcheck.pid())?, "");
    let managed = Workload::managed()?;
    managed.ask()?;
    assert_eq!(names(managed.pid())?, "managed-memory");
    Ok(())
}

/// Only the memory shows from outside, and not whether peer access is enabled.
#[test]
fn peer_access_is_possible_with_large_memory_on_two_gpus() -> Result<()> {
    needs!(TwoGpus);
    let contexts = Workload::counter_on(2, &["0", "1"], &[])?;
    contexts.ask()?;
    assert_eq!(blockers_of(TWO, contexts.pid())?, "");
    let small = Workload::peers(256, &[])?;
    small.ask()?;
    assert_eq!(blockers_of(TWO, small.pid())?, "");
    let large = Workload::peers(1024, &[])?;
    large.ask()?;
    assert_eq!(blockers_of(TWO, large.pid())?, "peer-access");
    Ok(())
}
