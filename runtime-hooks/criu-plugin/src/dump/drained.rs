//! What has been taken so far, also after a failure.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use stasis_memory_store::{Area, Chunk, CriuHas, ProcessMemory};

use crate::dump::source::{Piece, Source};

/// The chunks that are stored and whose memory was freed.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    /// By source and area.
    chunks: BTreeMap<(usize, usize), Vec<Chunk>>,
    /// Why memory was left to CRIU.
    pub(crate) left: Vec<String>,
    pub(crate) counts: Counts,
    pub(crate) empty_time: Duration,
}

/// Bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// In pages that had contents.
    pub(crate) bytes: u64,
    pub(crate) zero: u64,
    pub(crate) stored: u64,
    pub(crate) reused: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.zero += other.zero;
        self.stored += other.stored;
        self.reused += other.reused;
    }
}

impl Drained {
    pub(crate) fn add_chunk(&mut self, piece: Piece, chunk: Option<Chunk>) {
        let area = self.chunks.entry((piece.source, piece.area)).or_default();
        area.extend(chunk);
    }

    /// These chunks stay where they are: CRIU stores them.
    pub(crate) fn leave(&mut self, first: Piece, chunks: u64) {
        if let Some(area) = self.chunks.get_mut(&(first.source, first.area)) {
            let left = first.number..first.number + chunks;
            area.retain(|chunk| !left.contains(&chunk.number.into()));
        }
    }

    /// For the index: everything that is stored.
    pub(crate) fn processes(&mut self, sources: &[Source]) -> Vec<ProcessMemory> {
        let mut processes = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let mut areas = Vec::new();
            for (area, taken) in source.areas.iter().enumerate() {
                let mut chunks = self.chunks.remove(&(number, area)).unwrap_or_default();
                chunks.sort_by_key(|chunk| chunk.number);
                areas.push(Area {
                    start: taken.start,
                    bytes: taken.end - taken.start,
                    criu_has: CriuHas::Memory,
                    chunks,
                });
            }
            processes.push(ProcessMemory {
                pid: source.task.pid_inside,
                areas,
            });
        }
        processes
    }
}
