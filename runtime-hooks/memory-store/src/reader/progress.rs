//! Progress of the loading of files, for a caller that does not wait for its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Receives the progress of [`crate::Reader::load_files`], from several threads.
pub trait LoadProgress: Sync {
    /// Reports that `bytes` more are loaded, and verified.
    fn loaded(&self, bytes: u64);

    /// Reports that all of the file at `index` before `end`, from where its contents begin, is
    /// loaded and verified. `end` only grows.
    fn loaded_up_to(&self, index: usize, end: u64) {
        let _ = (index, end);
    }
}

/// Counts bytes.
impl LoadProgress for AtomicU64 {
    fn loaded(&self, bytes: u64) {
        self.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The pieces of a file, which are done in any order.
pub(super) struct Front {
    /// The end of each piece, and whether it is done.
    ends: Mutex<Pieces>,
}

struct Pieces {
    ends: Vec<(u64, bool)>,
    /// All pieces before this one are done.
    next: usize,
}

impl Front {
    /// Makes one of pieces with these ends; bytes between two pieces belong to the later one.
    pub(super) fn new(ends: impl IntoIterator<Item = u64>) -> Self {
        let ends = ends.into_iter().map(|end| (end, false)).collect();
        Self {
            ends: Mutex::new(Pieces { ends, next: 0 }),
        }
    }

    /// Notes that a piece is done; tells up to where all are, if that has changed.
    pub(super) fn done(&self, number: usize, tell: impl FnOnce(u64)) {
        let mut pieces = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, done)) = pieces.ends.get_mut(number) {
            *done = true;
        }
        let next = pieces.next;
        while matches!(pieces.ends.get(pieces.next), Some((_, true))) {
            pieces.next += 1;
        }
        if pieces.next > next {
            // With the lock: a later thread tells more.
            tell(pieces.ends[pieces.next - 1].0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_no_gap_before_it_is_told() {
        let front = Front::new([10, 20, 30, 40]);
        let told = Mutex::new(Vec::new());
        for number in [1, 0, 3, 2] {
            front.done(number, |end| told.lock().unwrap().push(end));
        }
        assert_eq!(told.into_inner().unwrap(), [20, 40]);
    }
}
