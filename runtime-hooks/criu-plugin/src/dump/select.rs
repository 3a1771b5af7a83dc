//! Selects the memory of a task that is taken: GPU contents, or all large areas that are private to
//! it. CRIU keeps the rest.

use stasis_memory_store::CHUNK;

use crate::error::Error;
use crate::tasks::smaps::Mapping;
use crate::tasks::tree::Task;
use stasis_linux::pagemap::Pagemap;

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

/// What is to be taken of one task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Start and end addresses; `None`: all.
    pub(crate) ranges: Option<&'a [(u64, u64)]>,
    /// Bytes; areas with less in them are left to CRIU.
    pub(crate) minimum: u64,
}

/// What is taken of one task, and why some of it is not.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) areas: Vec<SelectedArea>,
    pub(crate) left: Vec<String>,
}

/// A part of a mapping, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part<'m> {
    mapping: &'m Mapping,
    start: u64,
    end: u64,
    /// Bytes in it, at most.
    bytes: u64,
}

/// Selects areas. `others` are the mappings of the other tasks.
pub(crate) fn select(
    task: &Task,
    mappings: &[Mapping],
    others: &[&[Mapping]],
    pagemap: &Pagemap,
    wanted: Wanted<'_>,
) -> Result<Choice, Error> {
    let mut choice = Choice::default();
    let parts: Vec<_> = mappings
        .iter()
        .flat_map(|mapping| wanted.of(mapping))
        .collect();
    let addresses = task.addresses()?;
    for part in parts {
        let Part { start, end, .. } = part;
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
            is_locked: part.mapping.has(*b"lo"),
            bytes: part.bytes,
        });
    }
    Ok(choice)
}

impl Wanted<'_> {
    /// Bytes in large areas, more or less: in those that are wanted, and in the others.
    pub(crate) fn bytes(&self, mappings: &[Mapping]) -> (u64, u64) {
        let all = Wanted {
            ranges: None,
            ..*self
        };
        let bytes_of = |wanted: &Wanted<'_>| -> u64 {
            let parts = mappings.iter().flat_map(|mapping| wanted.of(mapping));
            parts.map(|part| part.bytes).sum()
        };
        let wanted = bytes_of(self);
        (wanted, bytes_of(&all).saturating_sub(wanted))
    }

    /// The wanted parts of a mapping. The kernel may have merged the driver's mapping with one of
    /// the program's beside it.
    fn of<'m>(&self, mapping: &'m Mapping) -> Vec<Part<'m>> {
        if !may_be_taken(mapping) {
            return Vec::new();
        }
        let (start, end) = (mapping.start, mapping.end);
        let ranges = self.ranges.unwrap_or(&[(0, u64::MAX)]).iter();
        let parts = ranges.map(|(from, to)| (start.max(*from), end.min(*to)));
        let parts = parts.filter(|(start, end)| start < end);
        let parts = parts.map(|(start, end)| Part {
            mapping,
            start,
            end,
            bytes: mapping.bytes().min(end - start),
        });
        parts.filter(|part| part.bytes >= self.minimum).collect()
    }
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
    fn gpu_contents_are_found_in_a_mapping_that_is_not_theirs_alone() {
        let mapping = heap(0, 64 * MIB);
        let of = |ranges: Option<&[(u64, u64)]>| {
            let wanted = Wanted {
                ranges,
                minimum: 16 * MIB,
            };
            let parts = wanted.of(&mapping).into_iter();
            parts.map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(of(None), [(0, 64 * MIB)]);
        assert_eq!(of(Some(&[])), []);
        let ranges = [
            (8 * MIB, 24 * MIB),
            (25 * MIB, 26 * MIB),
            (32 * MIB, 128 * MIB),
        ];
        assert_eq!(
            of(Some(&ranges)),
            [(8 * MIB, 24 * MIB), (32 * MIB, 64 * MIB)]
        );
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
