//! Makes descriptors of memory that other processes are to map.

use std::io;
use std::os::fd::OwnedFd;

use stasis_injected_survey::{Answer, FILES, Item, VisitState, What};

use super::Visited;
use crate::survey::{Asked, VisitError, request};

/// Makes a descriptor of the allocation at each address. The caller has to check the descriptors:
/// the process may have put others in their place.
///
/// # Errors
/// [`VisitError`]: the process has none of them.
pub fn export(visited: &Visited<'_>, addresses: &[u64]) -> Result<Vec<OwnedFd>, VisitError> {
    let mut files = Vec::new();
    for addresses in addresses.chunks(FILES) {
        let items = addresses.iter().map(|address| Item {
            address: *address,
            ..Item::default()
        });
        let items: Vec<Item> = items.collect();
        let request = request(visited.record, What::Export, &items);
        let asked = Asked::new(visited.process, visited.record, &request)?;
        let words = asked.until(VisitState::Holding)?;
        for [number, _] in Answer::read(&words).values().take(items.len()) {
            files.push(taken(visited, number)?);
        }
        asked.release_turn(1)?;
        // A thread that has not waited for us may have closed them before.
        asked.answer()?;
    }
    Ok(files)
}

/// Duplicates a descriptor of the process.
pub(super) fn taken(visited: &Visited<'_>, number: u64) -> io::Result<OwnedFd> {
    let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
    visited.process.descriptor(number)
}
