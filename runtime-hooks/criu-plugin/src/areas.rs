//! Which memory is taken: large, private, and nobody else's. The rest is left to CRIU.

use stasis_memory_store::CHUNK;

use crate::error::Error;
use crate::pagemap::Pagemap;
use crate::smaps::Mapping;
use crate::tree::Task;

/// How near to a thread's stack pointer or thread-local storage memory is left alone.
const MARGIN: u64 = 64 << 10;

/// What these flags stand for is not for us to move: huge pages of hugetlbfs, devices, userfaultfd, shadow stacks, stacks that grow.
const NOT_OURS: [&str; 7] = ["ht", "io", "pf", "uw", "ui", "ss", "gd"];

/// Memory of a task that is taken, in whole chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TakenArea {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Numbers of chunks that are left to CRIU.
    pub(crate) left: Vec<u64>,
    /// Its pages cannot be swapped out, and are given up in another way.
    pub(crate) is_locked: bool,
    /// About how much is in it.
    pub(crate) bytes: u64,
}

impl TakenArea {
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

/// What is taken of one task, and why some is not.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) areas: Vec<TakenArea>,
    pub(crate) left: Vec<String>,
}

/// Chooses areas with at least so many bytes in them. `others` are the mappings of the other tasks.
pub(crate) fn choose(
    task: &Task,
    mappings: &[Mapping],
    others: &[&[Mapping]],
    minimum: u64,
) -> Result<Choice, Error> {
    let mut choice = Choice::default();
    // An application's own would have CRIU fail as well; so it is what a guard still has to give.
    if let Some(missing) = mappings.iter().find(|mapping| mapping.has("um")) {
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
    let spots = task.spots()?;
    let pagemap = Pagemap::open(task.pid).map_err(Error::task("see the pages of", task.pid))?;
    for mapping in large {
        let (start, end) = (mapping.start, mapping.end);
        let shared = others.iter().any(|other| overlaps(other, start, end))
            && pagemap
                .is_shared(start, end)
                .map_err(Error::task("see the pages of", task.pid))?;
        if shared {
            choice.left.push(format!(
                "process {}: {start:x}-{end:x} has pages in common with another process since a fork",
                task.pid_inside
            ));
            continue;
        }
        choice.areas.push(TakenArea {
            start,
            end,
            left: chunks_near(&spots, start, end),
            is_locked: mapping.has("lo"),
            bytes: mapping.anonymous + mapping.swapped,
        });
    }
    Ok(choice)
}

fn may_be_taken(mapping: &Mapping) -> bool {
    mapping.is_private_anonymous()
        && mapping.permissions.starts_with("rw-")
        && (mapping.name.is_empty()
            || mapping.name == "[heap]"
            || mapping.name.starts_with("[anon:"))
        && !NOT_OURS.iter().any(|flag| mapping.has(flag))
}

/// Pages that were there at a fork are at the same addresses in both.
fn overlaps(mappings: &[Mapping], start: u64, end: u64) -> bool {
    let overlaps = |mapping: &&Mapping| mapping.start < end && start < mapping.end;
    mappings
        .iter()
        .filter(overlaps)
        .any(Mapping::is_private_anonymous)
}

fn chunks_near(spots: &[u64], start: u64, end: u64) -> Vec<u64> {
    let mut chunks = Vec::new();
    for spot in spots {
        let (from, to) = (
            spot.saturating_sub(MARGIN).max(start),
            (spot + MARGIN).min(end),
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
            permissions: "rw-p".into(),
            anonymous: end - start,
            ..Mapping::default()
        }
    }

    #[test]
    fn what_others_may_hold_or_need_is_left() {
        let mapping = heap(0, 64 * MIB);
        assert!(may_be_taken(&mapping));
        for flag in NOT_OURS {
            let flags = vec!["rd".to_owned(), flag.to_owned()];
            assert!(
                !may_be_taken(&Mapping {
                    flags,
                    ..mapping.clone()
                }),
                "{flag}"
            );
        }
        for permissions in ["rw-s", "r--p", "---p"] {
            let permissions = permissions.to_owned();
            assert!(!may_be_taken(&Mapping {
                permissions,
                ..mapping.clone()
            }));
        }
        for name in ["/lib/libc.so", "[stack]", "/dev/zero (deleted)"] {
            let name = name.to_owned();
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
