//! Whose memory is taken, and in which pieces.

use crate::dump::select::SelectedArea;
use crate::tasks::tree::Task;
use stasis_linux::pagemap::Pagemap;

/// A task and what is taken of it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) task: Task,
    pub(crate) areas: Vec<SelectedArea>,
    pub(crate) pagemap: Pagemap,
}

/// One chunk of the work.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) struct Piece {
    /// Index of the source.
    pub(crate) source: usize,
    /// Index of the area in its source.
    pub(crate) area: usize,
    /// Number of the chunk in its area.
    pub(crate) number: u64,
}

impl Source {
    /// Start and end addresses of what is taken.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for area in &self.areas {
            for number in area.chunks() {
                let (start, end) = area.chunk(number);
                match ranges.last_mut() {
                    Some(last) if last.1 == start => last.1 = end,
                    _ => ranges.push((start, end)),
                }
            }
        }
        ranges
    }
}

/// All chunks of all sources.
pub(crate) fn pieces(sources: &[Source]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (source, tasks) in sources.iter().enumerate() {
        for (area, taken) in tasks.areas.iter().enumerate() {
            pieces.extend(taken.chunks().map(|number| Piece {
                source,
                area,
                number,
            }));
        }
    }
    pieces
}
