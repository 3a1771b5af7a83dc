//! Finds where a process can have GPU memory.

use std::io;
use std::ops::ControlFlow;

use stasis_injected_survey::Item;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Mapping, for_each_mapping};

/// Far more than driver 580 has (some 250 for a rank of NCCL): each takes some microseconds.
const MOST: usize = 1 << 16;
/// More than all addresses that any driver reserves in one piece; with driver 580 some TiB.
const LONGEST: u64 = 1 << 44;

/// Returns the mappings in which the driver can have its allocations.
///
/// # Errors
/// An error of reading `/proc`; the process has more mappings than a driver makes.
pub(super) fn ranges(process: &ProcessRef) -> io::Result<Vec<Item>> {
    let mut found = Vec::new();
    let too_many = for_each_mapping(process.pid(), |mapping| {
        if !may_be_of_the_driver(&mapping) {
            return ControlFlow::Continue(());
        }
        found.push(Item {
            address: mapping.start,
            bytes: mapping.length(),
            ..Item::default()
        });
        match found.len() > MOST {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    match too_many {
        Some(()) => Err(io::Error::other("it has too many mappings")),
        None => Ok(found),
    }
}

/// Whether a mapping has neither rights, file nor name, or is shared memory of the driver's or
/// nameless shared memory.
fn may_be_of_the_driver(mapping: &Mapping<'_>) -> bool {
    let has_rights = mapping.has(b'r') || mapping.has(b'w') || mapping.has(b'x');
    let is_reserved = mapping.inode == 0 && mapping.path.is_empty() && !has_rights;
    let shared = [&b"/dev/nvidia"[..], b"/dev/zero", b"/memfd:"];
    let is_known = shared.iter().any(|name| mapping.path.starts_with(name));
    let is_shared = mapping.has(b's') && is_known;
    (is_reserved || is_shared) && mapping.length() <= LONGEST
}
