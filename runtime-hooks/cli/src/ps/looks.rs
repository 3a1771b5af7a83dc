//! Looks at all containers at the same time, so that one whose driver or process does not answer
//! delays no other, and is shown as such.

use std::collections::HashSet;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime};

use stasis_config::Settings;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_host::deadline::left_behind;
use stasis_locate::Located;

use super::row::{Known, Row};
use crate::log::past::Past;

/// Seconds until a container counts as not answering; an answer takes a fraction of one.
const PATIENCE: u32 = 10;

/// The settings for looks at containers, and the looks that have not ended.
#[derive(Debug)]
pub(super) struct Looks {
    settings: Arc<Settings>,
    /// The first processes of containers that were asked and have not answered: with `--watch` they
    /// are not asked again before that.
    waiting: Arc<Mutex<HashSet<i32>>>,
}

impl Looks {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut settings = settings.clone();
        let limit = &mut settings.deadlines.nvml_s;
        *limit = PATIENCE.min(*limit);
        Self {
            settings: Arc::new(settings),
            waiting: Arc::default(),
        }
    }

    /// Returns the rows of containers that use a GPU, and of containers that cannot be inspected.
    pub(super) fn at(&self, found: Vec<Located>, past: Past) -> Vec<Row> {
        let known = Arc::new(Known {
            settings: Arc::clone(&self.settings),
            // Without NVML the driver still reports the states.
            inventory: Inventory::read(&self.settings).unwrap_or_default(),
            past,
            now: SystemTime::now(),
        });
        let found = found.into_iter().map(Arc::new);
        let asked: Vec<_> = found
            .map(|located| (self.ask(&located, &known), located))
            .collect();
        let deadline = Instant::now() + Duration::from_secs(PATIENCE.into());
        let row = |(answer, located): (Option<Receiver<_>>, Arc<Located>)| {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = answer.and_then(|answer| answer.recv_timeout(left).ok());
            answer.unwrap_or_else(|| {
                left_behind();
                let why =
                    format!("no answer within {PATIENCE} s from the driver, or about a process");
                Some(Row::unknown(&known, &located, why))
            })
        };
        asked.into_iter().filter_map(row).collect()
    }

    /// Has a thread look at a container; `None` while an earlier answer is awaited. Without a
    /// thread no answer comes.
    fn ask(&self, located: &Arc<Located>, known: &Arc<Known>) -> Option<Receiver<Option<Row>>> {
        let pid = located.container.init().pid();
        if !lock(&self.waiting).insert(pid) {
            return None;
        }
        let (answer, answered) = mpsc::channel();
        let (located, known) = (Arc::clone(located), Arc::clone(known));
        let waiting = Arc::clone(&self.waiting);
        let look = move || {
            let row = Row::of(&known, &located);
            lock(&waiting).remove(&pid);
            // An answer that comes too late has no receiver.
            let _ = answer.send(row);
        };
        if Builder::new().spawn(look).is_err() {
            lock(&self.waiting).remove(&pid);
        }
        Some(answered)
    }
}

fn lock(waiting: &Mutex<HashSet<i32>>) -> MutexGuard<'_, HashSet<i32>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
