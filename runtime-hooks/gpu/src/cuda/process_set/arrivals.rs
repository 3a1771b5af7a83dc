//! Progress of loading the contents of restored processes, while the driver restores them.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cuda::process_set::initial_state::ProcessId;

/// The longest wait for news of the loading process, which may also have hung.
const LOOK: Duration = Duration::from_millis(100);
/// The driver is called once the rest should be loaded within this time: its deadline is for its
/// own work.
const SOON: Duration = Duration::from_secs(60);

/// Written by the thread that hears of the loading, and read by the one that copies.
#[derive(Debug)]
pub struct Arrivals {
    began: Instant,
    bytes: u64,
    state: Mutex<ArrivalState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ArrivalState {
    /// Bytes at the end of each process's contents.
    missing: BTreeMap<ProcessId, u64>,
    load: Load,
}

/// State of the loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    UnderWay,
    Done,
    Failed,
}

/// News for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing more is loaded than before.
    None,
    /// The number of bytes that are missing at the end of its contents.
    Missing(u64),
    /// Loading has ended: there is nothing to wait for. Bytes that are missing do no harm, since
    /// the restore fails.
    Over,
}

impl Arrivals {
    /// Makes it for contents of `bytes`, whose loading has `began`.
    pub(crate) fn new(began: Instant, bytes: u64) -> Self {
        Self {
            began,
            bytes,
            state: Mutex::new(ArrivalState {
                missing: BTreeMap::new(),
                load: Load::UnderWay,
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn set(&self, missing: BTreeMap<ProcessId, u64>) {
        self.state().missing = missing;
        self.changed.notify_all();
    }

    /// Notes the result of the loading.
    pub(crate) fn over(&self, succeeded: &Result<(), impl Sized>) {
        self.state().load = match succeeded {
            Ok(()) => Load::Done,
            Err(_) => Load::Failed,
        };
        self.changed.notify_all();
    }

    /// Whether the loading has failed.
    pub fn have_failed(&self) -> bool {
        self.state().load == Load::Failed
    }

    /// Returns news for a process that last received `last`; waits a moment for it.
    pub(crate) fn news(&self, process: &ProcessId, last: Option<u64>) -> News {
        let is_old = |state: &mut ArrivalState| {
            state.load == Load::UnderWay && state.missing.get(process).copied() == last
        };
        let waited = self.changed.wait_timeout_while(self.state(), LOOK, is_old);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (state.load, state.missing.get(process)) {
            (Load::Done | Load::Failed, _) => News::Over,
            (Load::UnderWay, Some(&missing)) if Some(missing) != last => News::Missing(missing),
            (Load::UnderWay, _) => News::None,
        }
    }

    /// Waits for the end of the loading; returns whether all is loaded.
    pub(crate) fn all_are_there(&self) -> bool {
        let under_way = |state: &mut ArrivalState| state.load == Load::UnderWay;
        let waited = self.changed.wait_while(self.state(), under_way);
        waited.unwrap_or_else(PoisonError::into_inner).load == Load::Done
    }

    /// Waits until the rest should be loaded soon, at the average speed so far.
    pub fn until_soon(&self) {
        let is_late = |state: &mut ArrivalState| {
            let missing = state.missing.values().sum::<u64>();
            let come = self.bytes.saturating_sub(missing);
            let took = self.began.elapsed().as_secs_f64();
            let is_known = !state.missing.is_empty() && come > 0;
            let left = missing as f64 * took / come.max(1) as f64;
            state.load == Load::UnderWay && !(is_known && left <= SOON.as_secs_f64())
        };
        drop(self.changed.wait_while(self.state(), is_late));
    }

    fn state(&self) -> MutexGuard<'_, ArrivalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn who_waits_hears_of_what_comes_and_of_the_end() {
        let process = ProcessId {
            pid: 1,
            start_time: 2,
        };
        let arrivals = Arc::new(Arrivals::new(Instant::now(), 10));
        let tells = Arc::clone(&arrivals);
        assert_eq!(arrivals.news(&process, None), News::None);
        arrivals.set(BTreeMap::from([(process, 7)]));
        assert_eq!(arrivals.news(&process, None), News::Missing(7));
        assert_eq!(arrivals.news(&process, Some(7)), News::None);
        arrivals.until_soon();
        let all = thread::spawn(move || arrivals.all_are_there());
        assert!(!tells.have_failed());
        tells.over(&Err::<(), _>(()));
        assert!(!all.join().unwrap());
        assert!(tells.have_failed());
        assert_eq!(tells.news(&process, None), News::Over);
    }
}
