//! Looks at all containers at the same time, so that one whose driver or process does not answer
//! delays no other, and is shown as such.

use std::collections::HashSet;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime};

use stasis_config::Settings;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_host::deadline::left_behind;
use stasis_locate::Located;

use super::row::Row;
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

/// Facts known without asking a container.
#[derive(Debug)]
struct Known {
    settings: Arc<Settings>,
    inventory: Inventory,
    past: Past,
    now: SystemTime,
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
        let found: Vec<Arc<Located>> = found.into_iter().map(Arc::new).collect();
        let (answer, answers) = mpsc::channel();
        let mut rows: Vec<Option<Option<Row>>> = Vec::new();
        for (number, located) in found.iter().enumerate() {
            rows.push(None);
            self.ask(number, located, &known, answer.clone());
        }
        drop(answer);
        let (began, limit) = (Instant::now(), Duration::from_secs(PATIENCE.into()));
        // An error: all have answered, or the others have not in time.
        while let Ok((number, row)) = answers.recv_timeout(limit.saturating_sub(began.elapsed())) {
            if let Some(place) = rows.get_mut(number) {
                *place = Some(row);
            }
        }
        let unanswered = |located: &Located| {
            left_behind();
            let why = format!("no answer within {PATIENCE} s from the driver, or about a process");
            Row::unknown(located, &known.past, known.now, why)
        };
        let rows = found.iter().zip(rows);
        rows.filter_map(|(located, row)| row.unwrap_or_else(|| Some(unanswered(located))))
            .collect()
    }

    /// Has a thread look at a container. No answer is sent while one is awaited, or without thread.
    fn ask(
        &self,
        number: usize,
        located: &Arc<Located>,
        known: &Arc<Known>,
        answer: Sender<(usize, Option<Row>)>,
    ) {
        let pid = located.container.init().pid();
        if !lock(&self.waiting).insert(pid) {
            return;
        }
        let (located, known) = (Arc::clone(located), Arc::clone(known));
        let waiting = Arc::clone(&self.waiting);
        let look = move || {
            let Known {
                settings,
                inventory,
                past,
                now,
            } = &*known;
            let row = Row::of(settings, &located, inventory, past, *now);
            lock(&waiting).remove(&pid);
            // An answer that comes too late has no receiver.
            let _ = answer.send((number, row));
        };
        if Builder::new().spawn(look).is_err() {
            lock(&self.waiting).remove(&pid);
        }
    }
}

fn lock(waiting: &Mutex<HashSet<i32>>) -> MutexGuard<'_, HashSet<i32>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
