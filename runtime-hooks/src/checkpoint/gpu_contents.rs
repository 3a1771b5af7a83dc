//! Finds GPU contents in the memory of CUDA processes.
//!
//! The driver's GPU checkpoint puts the GPU contents of a process into fresh memory of it, which is
//! private, anonymous and has no name (measured, driver 580). So they are in what has appeared
//! between lock and GPU checkpoint, together with what other threads have mapped meanwhile. The
//! kernel merges such a mapping with its neighbours: addresses are compared, and not mappings.

use std::io;
use std::ops::ControlFlow;

use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Mapping, for_each_mapping};

/// Start and end addresses, in their order.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// The private memory of processes, before the GPU checkpoint.
#[derive(Debug)]
pub(crate) struct MemoryBefore(Vec<(ProcessRef, Ranges)>);

impl MemoryBefore {
    /// Looks at locked processes. Those that cannot be looked at are left out.
    pub(crate) fn of(members: &[ProcessRef]) -> Self {
        let with_memory = |member: &ProcessRef| Some((member.clone(), memory_of(member).ok()?));
        Self(members.iter().filter_map(with_memory).collect())
    }

    /// What each process has now and had not before.
    pub(crate) fn appeared(self) -> Vec<(ProcessRef, Ranges)> {
        let appeared = |(member, before): (ProcessRef, Ranges)| {
            let now = memory_of(&member).ok()?;
            let ranges = without(&now, &before);
            (!ranges.is_empty()).then_some((member, ranges))
        };
        self.0.into_iter().filter_map(appeared).collect()
    }
}

fn memory_of(process: &ProcessRef) -> io::Result<Ranges> {
    let mut ranges = Ranges::new();
    for_each_mapping(process.pid(), |mapping| {
        if may_have_contents(&mapping) {
            add(&mut ranges, mapping.start, mapping.end);
        }
        ControlFlow::<()>::Continue(())
    })?;
    Ok(ranges)
}

/// A reservation without rights, as the driver has them for addresses of GPUs, has none.
fn may_have_contents(mapping: &Mapping<'_>) -> bool {
    mapping.permissions == *b"rw-p" && mapping.inode == 0 && !mapping.path.starts_with(b"/")
}

fn add(ranges: &mut Ranges, start: u64, end: u64) {
    match ranges.last_mut() {
        Some((_, last)) if *last == start => *last = end,
        _ => ranges.push((start, end)),
    }
}

/// What is in `now` and not in `before`; both are in the order of their addresses.
fn without(now: &[(u64, u64)], before: &[(u64, u64)]) -> Ranges {
    let mut left = Ranges::new();
    let mut before = before.iter().peekable();
    for &(start, end) in now {
        let mut at = start;
        while let Some(&&(from, to)) = before.peek() {
            if from >= end {
                break;
            }
            if at < from {
                left.push((at, from));
            }
            at = at.max(to);
            if to > end {
                break;
            }
            before.next();
        }
        if at < end {
            left.push((at, end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_not_what_appeared() {
        assert_eq!(without(&[(4, 8)], &[]), [(4, 8)]);
        assert_eq!(without(&[(4, 8)], &[(4, 8)]), []);
        assert_eq!(without(&[], &[(4, 8)]), []);
        // Merged with what was below, above, and on both sides.
        assert_eq!(without(&[(4, 12)], &[(4, 8)]), [(8, 12)]);
        assert_eq!(without(&[(4, 12)], &[(8, 12)]), [(4, 8)]);
        assert_eq!(without(&[(4, 16)], &[(0, 6), (10, 20)]), [(6, 10)]);
        // One that was split, and one that covers several.
        assert_eq!(without(&[(4, 6), (8, 12)], &[(0, 10)]), [(10, 12)]);
        let before = [(1, 2), (4, 5), (7, 8)];
        assert_eq!(
            without(&[(0, 9), (20, 21)], &before),
            [(0, 1), (2, 4), (5, 7), (8, 9), (20, 21)]
        );
    }

    #[test]
    fn neighbours_count_as_one() {
        let mut ranges = Ranges::new();
        for (start, end) in [(1, 2), (2, 4), (5, 6)] {
            add(&mut ranges, start, end);
        }
        assert_eq!(ranges, [(1, 4), (5, 6)]);
    }

    #[test]
    fn memory_that_appears_in_a_process_is_found() {
        let own = ProcessRef::open(i32::try_from(std::process::id()).unwrap())
            .unwrap()
            .unwrap();
        let before = MemoryBefore::of(std::slice::from_ref(&own));
        let memory = vec![1_u8; 64 << 20];
        let address = memory.as_ptr().expose_provenance() as u64 + (1 << 20);
        let appeared = before.appeared();
        let ranges = &appeared[0].1;
        let has = |&(start, end): &(u64, u64)| (start..end).contains(&address);
        assert!(ranges.iter().any(has), "{address:x} is not in {ranges:x?}");
    }
}
