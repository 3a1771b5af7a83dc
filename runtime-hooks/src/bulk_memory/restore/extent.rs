//! How much memory the bulk memory of an image takes.

use stasis_memory_store::{Area, CHUNK, CriuHas, Index, Reader};

const HUGE_PAGE: u64 = 2 << 20;
/// Huge pages may take this part more than what is filled in: where pages of a range were missing,
/// or zeros, they come back with it. A sparse heap could take 512 times what it had, and more than
/// the container may have.
const MOST_GROWTH: u64 = 4;

/// What an index describes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// The number of areas that the plugin fills.
    pub(super) areas: usize,
    /// The bytes that it fills in.
    bytes: u64,
    /// The memory that they take if all of it is huge pages.
    with_huge_pages: u64,
    /// The size of the files in memory that are mapped over holes, which have all of their pages.
    pub(super) file_bytes: u64,
    /// Of it, what is not in memory yet.
    new_bytes: u64,
}

impl Extent {
    /// `reader` is of the packs where they are now: what it has in place needs no memory.
    pub(super) fn of(index: &Index, reader: Option<&Reader>) -> Self {
        let filled = || areas(index, CriuHas::Memory);
        let chunks = filled().flat_map(|area| &area.chunks);
        let holes = || areas(index, CriuHas::Hole);
        let has = |hole: &&Area| reader.is_some_and(|reader| reader.in_place(hole).is_some());
        let in_file = |hole: &Area| hole.bytes.next_multiple_of(HUGE_PAGE);
        Self {
            areas: filled().count(),
            bytes: chunks.map(|chunk| chunk.pages.bytes() as u64).sum(),
            with_huge_pages: with_huge_pages(index),
            file_bytes: sum(holes().map(in_file)),
            new_bytes: sum(holes().filter(|hole| !has(hole)).map(in_file)),
        }
    }

    /// The host memory that it takes, bytes.
    pub(super) fn host_bytes(self) -> u64 {
        let filled = if self.fits_huge_pages() {
            self.with_huge_pages
        } else {
            self.bytes
        };
        filled.saturating_add(self.new_bytes)
    }

    /// Whether there is something to fill in, and huge pages take hardly more.
    pub(super) fn is_dense(self) -> bool {
        self.bytes > 0 && self.fits_huge_pages()
    }

    fn fits_huge_pages(self) -> bool {
        self.with_huge_pages <= self.bytes + self.bytes / MOST_GROWTH
    }
}

/// An image may say that each of many processes has as much as there are addresses.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn areas(index: &Index, with: CriuHas) -> impl Iterator<Item = &Area> {
    index.areas().filter(move |area| area.criu_has == with)
}

/// The bytes of all huge pages that the stored pages are in.
fn with_huge_pages(index: &Index) -> u64 {
    let (mut last, mut count) = (None, 0);
    for area in areas(index, CriuHas::Memory) {
        for chunk in &area.chunks {
            let start = area.start + u64::from(chunk.number) * CHUNK as u64;
            for run in chunk.pages.runs() {
                let from = start + run.offset as u64;
                let (from, to) = (from / HUGE_PAGE, (from + run.bytes as u64 - 1) / HUGE_PAGE);
                // Neighbours share one.
                count += to - from + u64::from(last != Some(from));
                last = Some(to);
            }
        }
    }
    count * HUGE_PAGE
}

#[cfg(test)]
mod tests;
