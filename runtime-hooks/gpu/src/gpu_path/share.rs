//! Shares of the CPUs for processes that are copied at the same time: by the bytes that each holds.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

/// The share of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    bytes: u64,
    of_bytes: u64,
}

impl Share {
    /// All CPUs: the only process copying.
    pub(super) const WHOLE: Self = Self {
        bytes: 1,
        of_bytes: 1,
    };

    /// The share of a process that holds `bytes`, where all together hold `of_bytes`.
    pub(super) fn new(bytes: u64, of_bytes: u64) -> Self {
        Self { bytes, of_bytes }
    }

    /// Returns the share of these CPUs, at least one.
    pub(super) fn of(self, cpus: u64) -> u64 {
        let share = u128::from(cpus) * u128::from(self.bytes) / u128::from(self.of_bytes.max(1));
        u64::try_from(share).unwrap_or(cpus).clamp(1, cpus.max(1))
    }

    /// Returns the share of these threads, at least one.
    pub(super) fn of_threads(self, threads: NonZeroUsize) -> NonZeroUsize {
        let share = self.of(threads.get() as u64);
        let share = usize::try_from(share).ok().and_then(NonZeroUsize::new);
        share.unwrap_or(NonZeroUsize::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_more_has_more_cpus() {
        assert_eq!(Share::WHOLE.of(16), 16);
        assert_eq!(Share::new(1 << 30, 16 << 30).of(16), 1);
        let small = Share::new(1 << 30, 80 << 30);
        assert_eq!(
            (small.of(16), small.of_threads(NonZeroUsize::MIN).get()),
            (1, 1)
        );
        assert_eq!(Share::new(64 << 30, 80 << 30).of(16), 12);
        assert_eq!(Share::new(u64::MAX, u64::MAX).of(256), 256);
    }

    #[test]
    fn nobody_has_none_or_more_than_there_are() {
        for (bytes, of_bytes) in [(0, 0), (0, 5), (7, 0), (9, 3)] {
            let share = Share::new(bytes, of_bytes).of(4);
            assert!((1..=4).contains(&share), "{bytes} of {of_bytes}: {share}");
        }
        assert_eq!(Share::WHOLE.of(0), 1);
    }
}
