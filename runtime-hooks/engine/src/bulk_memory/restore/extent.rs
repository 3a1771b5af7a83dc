//! How much memory the bulk memory of an image takes.

use stasis_memory_store::{Area, Index, Reader};

const HUGE_PAGE: u64 = 2 << 20;

/// The size of the bulk memory that an index describes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// The number of holes.
    pub(super) areas: usize,
    /// The size of the files in memory that are mapped over holes, which have all of their pages.
    pub(super) file_bytes: u64,
    /// The part of it that is not in memory yet: the host memory that it takes.
    pub(super) new_bytes: u64,
}

impl Extent {
    /// `reader` is of the packs at their present place: holes that it has in place need no memory.
    pub(super) fn of(index: &Index, reader: Option<&Reader>) -> Self {
        let has = |hole: &&Area| reader.is_some_and(|reader| reader.in_place(hole).is_some());
        let in_file = |hole: &Area| hole.bytes.next_multiple_of(HUGE_PAGE);
        Self {
            areas: index.areas().count(),
            file_bytes: sum(index.areas().map(in_file)),
            new_bytes: sum(index.areas().filter(|hole| !has(hole)).map(in_file)),
        }
    }
}

/// Saturates: an image may claim the whole address space for each of many processes.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use stasis_memory_store::{CHUNK, PAGE, PacksIn, ProcessMemory};

    use super::*;
    use crate::bulk_memory::restore::found::tests::index;

    fn with_holes(processes: i32, bytes: u64) -> Index {
        let mut index = index(PacksIn::Image);
        let hole = Area {
            start: 0x7f00_0010_0000,
            bytes,
            chunks: Vec::new(),
        };
        index.processes = (1..=processes)
            .map(|pid| ProcessMemory {
                pid,
                areas: vec![hole.clone()],
            })
            .collect();
        index
    }

    #[test]
    fn a_hole_takes_a_whole_file() {
        let extent = Extent::of(&with_holes(2, (2 * CHUNK + PAGE) as u64), None);
        assert_eq!((extent.areas, extent.file_bytes), (2, 20 << 20));
        assert_eq!(extent.new_bytes, extent.file_bytes);
    }

    #[test]
    fn the_sum_of_holes_is_never_less_than_they_are() {
        let extent = Extent::of(&with_holes(130, 1 << 57), None);
        assert_eq!(extent.new_bytes, u64::MAX);
    }
}
