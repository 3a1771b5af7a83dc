//! The container whose CUDA processes are meant.

use super::Error;
use super::stopped::held;
use crate::cli::locate::Located;
use crate::cuda::Driver;
use crate::cuda::failure::ProcessFailure;
use crate::cuda::process_set::{ProcessStates, query_states};

/// The name of a container, in messages.
pub(super) fn name(found: &Located) -> String {
    format!("container {}", found.container.id())
}

/// Its processes with CUDA, as the driver has them now.
pub(super) fn members(
    found: &Located,
    driver: &dyn Driver,
) -> Result<ProcessStates, ProcessFailure> {
    let container = &found.container;
    let snapshot = container.snapshot();
    let snapshot = snapshot.map_err(|error| ProcessFailure::of_query(container.init(), error))?;
    query_states(driver, snapshot.into_candidates())
}

/// The first query of the members, before all of them are known to answer.
pub(super) fn query_members(found: &Located, driver: &dyn Driver) -> Result<ProcessStates, Error> {
    for process in found.container.snapshot()?.candidates() {
        if let Some(held) = held(process, || None)? {
            return Err(Error::Held {
                pid: process.pid(),
                name: process.name().to_owned(),
                held,
            });
        }
    }
    let members = members(found, driver).map_err(Error::Untouched)?;
    if members.is_empty() {
        return Err(Error::NoMembers(name(found)));
    }
    Ok(members)
}
