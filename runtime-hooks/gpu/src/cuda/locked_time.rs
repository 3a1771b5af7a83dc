//! The time for which a container cannot call CUDA.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A clock that runs while at least one process is locked.
#[derive(Debug, Default)]
pub(crate) struct LockedTime {
    locked: BTreeSet<i32>,
    /// Since when at least one process is locked.
    since: Option<Instant>,
    before: Duration,
}

impl LockedTime {
    /// Notes that a process was locked.
    pub(crate) fn lock(&mut self, pid: i32, now: Instant) {
        self.locked.insert(pid);
        self.since.get_or_insert(now);
    }

    /// Notes that a process was unlocked.
    pub(crate) fn unlock(&mut self, pid: i32, now: Instant) {
        self.locked.remove(&pid);
        if self.locked.is_empty() {
            self.before = self.until(now);
            self.since = None;
        }
    }

    /// Returns all the time until now.
    pub(crate) fn until(&self, now: Instant) -> Duration {
        let last = self.since.map(|since| now.saturating_duration_since(since));
        self.before.saturating_add(last.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_one_is_locked_counts_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut time = LockedTime::default();
        assert_eq!(time.until(at(1)), Duration::ZERO);
        time.lock(7, at(1));
        time.lock(8, at(2));
        time.unlock(7, at(4));
        assert_eq!(time.until(at(5)), Duration::from_secs(4));
        time.unlock(8, at(6));
        assert_eq!(time.until(at(9)), Duration::from_secs(5));
        // A process that was found locked, and then a second try.
        time.unlock(9, at(10));
        time.lock(7, at(10));
        assert_eq!(time.until(at(12)), Duration::from_secs(7));
    }
}
