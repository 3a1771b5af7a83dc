//! The copies to disk of bulk memory in the tier `ram`, made after the checkpoint has returned.
//!
//! What has to be copied is read from the stores (`pending.rs`) and known to nobody else: whoever
//! makes the copies may be killed at any point, and whoever comes next goes on. That is the process
//! that a checkpoint starts ([`WriteBehind`]), or the next operation, `stasis recover` or the unit
//! at boot if there is none, or `stasis memory flush`. One copy is made at a time, since they share
//! a disk and the later one links the packs of the earlier one.

pub(crate) mod copy;
mod copy_file;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use stasis_config::{BulkMemory, MemoryTier, Paths, Settings};
use stasis_memory_store::ImageId;

use crate::bulk_memory::in_use::try_lock_opened;
use crate::bulk_memory::lost;
use crate::bulk_memory::pending::{self, Pending, pending_in};
use crate::bulk_memory::retention;
use crate::bulk_memory::stores::{self, Stores};
use crate::bulk_memory::write_behind::copy::{Copied, Copy};
use crate::error::io_kind::of_io;
use crate::error::kind::{Diagnosis, Kind, State};
use crate::error::operations_log::{self, Failed};
use crate::host::file_lock::{self, Lock, Sharing};
use crate::host::respawn;
use crate::operation::timeline::Timeline;

/// The first argument of a process that makes copies.
const VERB: &str = "stasis-write-behind";
/// More threads do not make disks faster.
const MOST_THREADS: usize = 4;
/// The first and the longest pause before what failed is tried again, and a disk that was full may
/// have room.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A process that makes the copies that are pending; there is one at most.
#[derive(Debug, Serialize, Deserialize)]
pub struct WriteBehind {
    bulk_memory: BulkMemory,
    paths: Paths,
}

/// What has become of a pending copy.
#[derive(Debug)]
pub(crate) enum Outcome {
    Copied(Copied),
    /// It is not needed any more.
    Gone,
    /// It stays pending.
    Failed(io::Error),
}

/// Starts the process that makes the copies, if one is pending. One that is at work already sees
/// what has become pending.
///
/// # Errors
/// The I/O error.
pub(crate) fn start_if_pending(settings: &Settings) -> io::Result<()> {
    if pending_in(&Stores::of(settings))?.is_empty() {
        return Ok(());
    }
    start(settings)
}

/// Starts the process that makes the copies that are pending, and removes what nobody needs any
/// more ([`retention`]).
///
/// # Errors
/// The I/O error.
pub(crate) fn start(settings: &Settings) -> io::Result<()> {
    let job = WriteBehind {
        bulk_memory: settings.bulk_memory.clone(),
        paths: settings.paths.clone(),
    };
    respawn::start(VERB, &job).map(|_pid| ())
}

/// After a restart of the machine or a crash: says what was lost, and makes the copies that are
/// pending.
pub(crate) fn take_up(settings: &Settings) {
    // Who makes copies does both again.
    if let Ok(Some(_gate)) = Gate::of(&Stores::of(settings).disk) {
        let _ = lost::declare(settings);
    }
    let _ = start_if_pending(settings);
}

impl WriteBehind {
    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-durable")
    }

    /// Makes the copies that are pending, and tries those that fail again and again.
    ///
    /// # Errors
    /// The stores in memory cannot be read.
    pub fn run(self) -> io::Result<()> {
        let settings = Settings {
            bulk_memory: self.bulk_memory,
            paths: self.paths,
            ..Settings::default()
        };
        let stores = Stores::of(&settings);
        if pending_in(&stores)?.is_empty() {
            // Who has the gate does the same when its copies are made.
            if let Some(_gate) = Gate::of(&stores.disk)? {
                retention::tidy(&settings);
            }
            return Ok(());
        }
        // Who has the turn also makes the copy that this process was started for: it looks once
        // more after it has given up the turn.
        while let Some(turn) = take_turn(&stores.ram)? {
            copy_until_none(&settings);
            drop(turn);
            if pending_in(&stores)?.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

fn copy_until_none(settings: &Settings) {
    let mut pause = FIRST_PAUSE;
    let mut logged = HashSet::new();
    loop {
        let tried = copy_all(settings, &mut logged);
        let mut outcomes = tried.iter().map(|(_, outcome)| outcome);
        if outcomes.all(|outcome| !matches!(outcome, Outcome::Failed(_))) {
            return;
        }
        sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tries each pending copy once, the oldest first, and writes lines to `operations.log`: of those
/// that fail, only if they are not in `logged`.
pub(crate) fn copy_all(
    settings: &Settings,
    logged: &mut HashSet<ImageId>,
) -> Vec<(Pending, Outcome)> {
    let stores = Stores::of(settings);
    let gate = stores::prepare(&stores.disk).and_then(|()| Gate::wait(&stores.disk));
    if gate.is_ok() {
        let _ = lost::declare(settings);
        // A full disk may get room by that.
        retention::tidy(settings);
    }
    // They are listed behind the gate: another process may have made them.
    let pending = pending_in(&stores).unwrap_or_default().into_iter();
    let tried = pending.map(|pending| {
        let (began, start) = (SystemTime::now(), Instant::now());
        let outcome = match &gate {
            Ok(_gate) => copy_one(settings, &stores, &pending),
            Err(error) => Outcome::Failed(io::Error::new(error.kind(), error.to_string())),
        };
        let is_news = match &outcome {
            Outcome::Copied(_) => true,
            Outcome::Gone => false,
            Outcome::Failed(_) => logged.insert(pending.image_id),
        };
        if is_news {
            log(settings, &pending, &outcome, began, start.elapsed());
        }
        (pending, outcome)
    });
    let tried: Vec<_> = tried.collect();
    if !tried.is_empty() {
        retention::tidy(settings);
    }
    tried
}

fn copy_one(settings: &Settings, stores: &Stores, pending: &Pending) -> Outcome {
    let threads = settings.bulk_memory.threads_for(MemoryTier::Ram);
    let copy = Copy {
        pending,
        stores,
        threads: threads.min(MOST_THREADS),
    };
    match copy.make() {
        Ok(copied) => {
            lost::forget_older(stores, &pending.origin);
            Outcome::Copied(copied)
        }
        Err(_) if !pending.from.is_dir() => {
            let _ = pending::forget(stores, pending.image_id);
            Outcome::Gone
        }
        Err(error) => Outcome::Failed(error),
    }
}

fn log(
    settings: &Settings,
    pending: &Pending,
    outcome: &Outcome,
    began: SystemTime,
    took: Duration,
) {
    let id = pending.image_id;
    let mut timeline = Timeline::default();
    let failure = match outcome {
        Outcome::Copied(copied) => {
            timeline.add("copy", took, Some(copied.bytes));
            timeline.note(format!(
                "bulk memory {id} is on disk: {} MiB written, {} MiB there before",
                copied.bytes >> 20,
                copied.there >> 20
            ));
            None
        }
        Outcome::Gone => None,
        Outcome::Failed(error) => {
            let text = format!(
                "bulk memory {id} is not on disk, and is lost if this machine restarts: {error}; \
                 this is tried again until it succeeds (`stasis memory flush` tries now)"
            );
            let kind = of_io(error, Kind::ImageDirectory);
            Some(Failed::new(&text, Diagnosis::new(kind, State::Unharmed)))
        }
    };
    let (log_dir, container) = (&settings.paths.log_dir, &pending.origin.container);
    operations_log::write_afterwards(log_dir, "durable", container, began, &timeline, failure);
}

/// Who holds it makes copies into a directory for stores.
#[derive(Debug)]
struct Gate(#[expect(dead_code, reason = "it is locked as long as it is open")] File);

impl Gate {
    /// `None` if somebody else holds it, or there is no such directory.
    fn of(disk: &Path) -> io::Result<Option<Self>> {
        Ok(try_lock_opened(File::open(disk), Sharing::Exclusive)?.map(Self))
    }

    /// Waits as long as the other one's copies take.
    fn wait(disk: &Path) -> io::Result<Self> {
        let gate = File::open(disk)?;
        file_lock::lock(&gate)?;
        Ok(Self(gate))
    }
}

/// The lock that makes this process the only one that tries again and again.
fn take_turn(ram: &Path) -> io::Result<Option<Lock>> {
    Ok(try_lock_opened(File::open(ram), Sharing::Exclusive)?.map(Lock::of))
}

#[cfg(test)]
mod tests;
