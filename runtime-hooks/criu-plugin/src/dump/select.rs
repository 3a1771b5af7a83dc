//! Selects the memory that is taken: large areas that are private to one process. CRIU keeps the
//! rest.

use stasis_memory_store::CHUNK;

use crate::error::Error;
use crate::tasks::pagemap::Pagemap;
use crate::tasks::smaps::Mapping;
use crate::tasks::tree::Task;

/// Memory this near to a thread's stack pointer or thread-local storage is left to CRIU.
const MARGIN: u64 = 64 << 10;

/// Flags of mappings that are left to CRIU: huge pages of hugetlbfs, devices, userfaultfd, shadow
/// stacks, stacks that grow.
const NOT_OURS: [&[u8; 2]; 7] = [b"ht", b"io", b"pf", b"uw", b"ui", b"ss", b"gd"];

/// Memory of a task that is taken, in whole chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedArea {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Numbers of chunks that are left to CRIU.
    pub(crate) left: Vec<u64>,
    /// It is locked (mlock), and freed in another way.
    pub(crate) is_locked: bool,
    /// Bytes in it, more or less.
    pub(crate) bytes: u64,
}

impl SelectedArea {
    /// Numbers of the chunks that are taken.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u64> {
        let all = 0..(self.end - self.start).div_ceil(CHUNK as u64);
        all.filter(|number| !self.left.contains(number))
    }

    /// Start and end address of a chunk.
    pub(crate) fn chunk(&self, number: u64) -> (u64, u64) {
        let start = self.start + number * CHUNK as u64;
        (start, self.end.min(start + CHUNK as u64))
    }
}

/// What is taken of one task, and why some of it is not.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) areas: Vec<SelectedArea>,
    pub(crate) left: Vec<String>,
}

/// Selects areas with at least `minimum` bytes in them. `others` are the mappings of the other
/// tasks.
pub(crate) fn select(
    task: &Task,
    mappings: &[Mapping],
    others: &[&[Mapping]],
    minimum: u64,
) -> Result<Choice, Error> {
    let mut choice = Choice::default();
    // CRIU refuses a task with a userfaultfd of its own, so these pages are missing since an
    // earlier checkpoint of ours failed.
    if let Some(missing) = mappings.iter().find(|mapping| mapping.has(*b"um")) {
        return Err(Error::Missing {
            pid: task.pid_inside,
            start: missing.start,
        });
    }
    let large: Vec<_> = mappings
        .iter()
        .filter(|mapping| mapping.anonymous + mapping.swapped >= minimum && may_be_taken(mapping))
        .collect();
    if large.is_empty() {
        return Ok(choice);
    }
    let addresses = task.addresses()?;
    let pagemap = Pagemap::open(task.pid).map_err(Error::task("see the pages of", task.pid))?;
    for mapping in large {
        let (start, end) = (mapping.start, mapping.end);
        let shared = others.iter().any(|other| overlaps(other, start, end))
            && pagemap
                .is_shared(start, end)
                .map_err(Error::task("see the pages of", task.pid))?;
        if shared {
            choice.left.push(format!(
                "process {}: {start:x}-{end:x} shares pages with another process since a fork",
                task.pid_inside
            ));
            continue;
        }
        choice.areas.push(SelectedArea {
            start,
            end,
            left: chunks_near(&addresses, start, end),
            is_locked: mapping.has(*b"lo"),
            bytes: mapping.anonymous + mapping.swapped,
        });
    }
    Ok(choice)
}

fn may_be_taken(mapping: &Mapping) -> bool {
    mapping.is_private_anonymous()
        && mapping.permissions.starts_with(b"rw-")
        && (mapping.name.is_empty()
            || mapping.name == b"[heap]"
            || mapping.name.starts_with(b"[anon:"))
        && !NOT_OURS.iter().any(|flag| mapping.has(**flag))
}

/// After a fork, shared pages are at the same addresses in both processes.
fn overlaps(mappings: &[Mapping], start: u64, end: u64) -> bool {
    let overlaps = |mapping: &&Mapping| mapping.start < end && start < mapping.end;
    mappings
        .iter()
        .filter(overlaps)
        .any(Mapping::is_private_anonymous)
}

fn chunks_near(addresses: &[u64], start: u64, end: u64) -> Vec<u64> {
    let mut chunks = Vec::new();
    for address in addresses {
        let (from, to) = (
            address.saturating_sub(MARGIN).max(start),
            (address + MARGIN).min(end),
        );
        if from < to {
            let number = |address: u64| (address - start) / CHUNK as u64;
            chunks.extend(number(from)..=number(to - 1));
        }
    }
    chunks.sort_unstable();
    chunks.dedup();
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn heap(start: u64, end: u64) -> Mapping {
        Mapping {
            start,
            end,
            permissions: *b"rw-p",
            anonymous: end - start,
            ..Mapping::default()
        }
    }

    #[test]
    fn what_others_may_hold_or_need_is_left() {
        let mapping = heap(0, 64 * MIB);
        assert!(may_be_taken(&mapping));
        for flag in NOT_OURS {
            let flags = vec![*b"rd", *flag];
            assert!(
                !may_be_taken(&Mapping {
                    flags,
                    ..mapping.clone()
                }),
                "{flag:?}"
            );
        }
        for permissions in [*b"rw-s", *b"r--p", *b"---p"] {
            assert!(!may_be_taken(&Mapping {
                permissions,
                ..mapping.clone()
            }));
        }
        for name in ["/lib/libc.so", "[stack]", "/dev/zero (deleted)"] {
            let name = name.as_bytes().to_owned();
            assert!(!may_be_taken(&Mapping {
                name,
                ..mapping.clone()
            }));
        }
        assert!(!may_be_taken(&Mapping {
            inode: 1,
            ..mapping
        }));
    }

    #[test]
    fn stacks_in_the_middle_of_an_area_are_left() {
        let chunk = CHUNK as u64;
        let (start, end) = (8 * chunk, 18 * chunk);
        assert_eq!(chunks_near(&[start + chunk / 2], start, end), [0]);
        assert_eq!(chunks_near(&[start + chunk], start, end), [0, 1]);
        assert_eq!(chunks_near(&[start - 1, end + 1], start, end), [0, 9]);
        assert!(chunks_near(&[0, start - chunk, end + chunk], start, end).is_empty());
    }

    #[test]
    fn addresses_in_common_are_a_reason_to_look() {
        let others = [heap(MIB, 2 * MIB)];
        assert!(overlaps(&others, 0, MIB + 1));
        assert!(!overlaps(&others, 0, MIB));
        let file = [Mapping {
            inode: 7,
            ..heap(0, MIB)
        }];
        assert!(!overlaps(&file, 0, MIB));
    }
}
