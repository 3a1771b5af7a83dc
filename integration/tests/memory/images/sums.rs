//! Small images that claim to become more memory than a machine has: each chunk and each area is
//! valid, and only their sum is not.

use anyhow::{Context, Result};
use stasis_memory_store::{Area, CHUNK, Chunk, Index, ProcessMemory};

use super::Images;
use crate::limits::with_available;

/// The memory that the machine reports, MiB.
const AVAILABLE: u64 = 1024;

/// The end of all addresses.
const ADDRESSES: u64 = 1 << 57;
const REFUSED: [&str; 3] = [
    "MiB of host memory for this, and the host has",
    "make room and try again",
    "nothing was changed",
];

pub(super) fn the_index_says_more_than_the_machine_has(images: &Images<'_>) -> Result<()> {
    let whole = whole_chunk(&images.index)?;
    let chunks = u32::try_from((AVAILABLE << 20) / CHUNK as u64)?;
    with_available(images.stasis, AVAILABLE, || {
        // The report is a mount of the host, which the inventory lists.
        let images = Images {
            before: images.stasis.inventory()?,
            index: images.index.clone(),
            ..*images
        };
        images.forged(
            |index| one_chunk_many_times(index, &whole, chunks),
            &REFUSED,
        )?;
        images.forged(
            |index| one_chunk_in_each_of(index, &whole, chunks),
            &REFUSED,
        )?;
        // The first sum of these that 64 bits do not hold would be 0.
        images.forged(|index| all_addresses_of(index, 128), &REFUSED)
    })
}

fn whole_chunk(index: &Index) -> Result<Chunk> {
    let mut chunks = index.areas().flat_map(|area| &area.chunks);
    let whole = chunks.find(|chunk| chunk.pages.bytes() == CHUNK);
    whole.cloned().context("no chunk is whole")
}

/// Has a few MiB of a pack become a whole area.
fn one_chunk_many_times(index: &mut Index, chunk: &Chunk, times: u32) {
    let Some(area) = index.processes[0].areas.last_mut() else {
        return;
    };
    area.bytes = u64::from(times) * CHUNK as u64;
    area.chunks = (0..times)
        .map(|number| Chunk {
            number,
            ..chunk.clone()
        })
        .collect();
}

/// Does the same with one process for each chunk.
fn one_chunk_in_each_of(index: &mut Index, chunk: &Chunk, processes: u32) {
    for pid in 1..=processes {
        let area = Area {
            start: 1 << 30,
            bytes: CHUNK as u64,
            chunks: vec![Chunk {
                number: 0,
                ..chunk.clone()
            }],
        };
        index.processes.push(ProcessMemory {
            // The pids of the image are lower.
            pid: 100_000 + pid.cast_signed(),
            areas: vec![area],
        });
    }
}

/// Adds processes that lack all possible addresses, for files in memory.
fn all_addresses_of(index: &mut Index, processes: i32) {
    for pid in 1..=processes {
        let area = Area {
            start: 0,
            bytes: ADDRESSES,
            chunks: Vec::new(),
        };
        index.processes.push(ProcessMemory {
            pid: 100_000 + pid,
            areas: vec![area],
        });
    }
}
