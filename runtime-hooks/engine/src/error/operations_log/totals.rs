//! The totals of the lines of `operations.log`. Before a log is replaced, its lines are added to a
//! file of their own, so the counts never decrease.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use stasis_host::file_lock::{MOMENT, Sharing, lock_within};
use stasis_linux::file::{self, Access, Durability};
use stasis_memory_store::StoreStatistics;

use super::distribution::{BYTES, Distribution, SECONDS};
use super::{EARLIER, FILE_NAME};
use crate::operation::timeline::{Phase, most_bytes, seconds_of};

/// The file's name in the log directory, and more than its largest size.
const TOTALS: &str = "operations.totals";
const MOST_TOTALS: u64 = 1 << 20;
/// The most that is read of a log: logs are rotated at 64 MiB.
const MOST_BYTES: u64 = 128 << 20;
/// The outcome of an operation that did not fail.
const DONE: &str = "done";

/// The totals of lines.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// By the names of operations.
    pub operations: BTreeMap<String, Total>,
    /// The put-aside log whose lines are in them, until another one takes its place.
    with: Option<Identity>,
}

/// The totals of one operation.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// How many, by the outcome: "done", or the kind of the error.
    pub outcomes: BTreeMap<String, u64>,
    /// How long successful operations took, and kept the container from working.
    pub seconds: Distribution,
    /// Seconds in which CUDA was locked.
    pub locked: Distribution,
    /// Seconds in which processes were frozen.
    pub frozen: Distribution,
    /// The bytes that they moved.
    pub bytes: Distribution,
}

/// The identity of a file that no process writes to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// The counted fields of a line.
#[derive(Deserialize)]
struct Counted {
    operation: String,
    error: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    phases: Vec<Phase>,
    bulk_memory: Option<StoreStatistics>,
    locked_seconds: Option<f64>,
    frozen_seconds: Option<f64>,
}

impl Totals {
    /// Reads the totals of all lines ever written; empty without a log.
    ///
    /// # Errors
    /// The I/O error; [`io::ErrorKind::WouldBlock`] if a log is being put aside for 5 s.
    pub fn read(log_dir: &Path) -> io::Result<Self> {
        let Some(directory) = file::if_exists(File::open(log_dir))? else {
            return Ok(Self::default());
        };
        // The lock keeps logs from being put aside meanwhile.
        lock_within(MOMENT, &directory, Sharing::Shared)?;
        let mut totals = Self::kept(log_dir)?;
        totals.include(log_dir, EARLIER)?;
        totals.include(log_dir, FILE_NAME)?;
        Ok(totals)
    }

    /// Adds the lines of the earlier log to the kept totals. The caller has the lock, and replaces
    /// that log.
    ///
    /// # Errors
    /// The I/O error; nothing is changed then.
    pub(super) fn keep_earlier(log_dir: &Path) -> io::Result<()> {
        let mut totals = match Self::kept(log_dir) {
            // Damaged totals are lost: the count starts anew.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Self::default(),
            kept => kept?,
        };
        totals.with = totals.include(log_dir, EARLIER)?;
        let text = serde_json::to_vec(&totals)?;
        let path = log_dir.join(TOTALS);
        file::replace(&path, &text, Access::Private, Durability::Durable)
    }

    fn kept(log_dir: &Path) -> io::Result<Self> {
        let path = log_dir.join(TOTALS);
        let Some(text) = file::read(&path, MOST_TOTALS)? else {
            return Ok(Self::default());
        };
        let totals: Self = serde_json::from_slice(&text).map_err(|_| damaged())?;
        let all_fit = totals.operations.values().all(|total| {
            let seconds = [&total.seconds, &total.locked, &total.frozen];
            seconds.iter().all(|times| times.fits(&SECONDS)) && total.bytes.fits(&BYTES)
        });
        match all_fit {
            true => Ok(totals),
            false => Err(damaged()),
        }
    }

    /// Adds the lines of a log, unless they are included; returns the log's identity. Skips invalid
    /// lines.
    fn include(&mut self, log_dir: &Path, name: &str) -> io::Result<Option<Identity>> {
        let Some(file) = file::open(&log_dir.join(name))? else {
            return Ok(None);
        };
        let identity = Identity::of(&file.metadata()?);
        if self.with == Some(identity) {
            return Ok(self.with);
        }
        for text in BufReader::new(file.take(MOST_BYTES)).split(b'\n') {
            if let Ok(line) = serde_json::from_slice(&text?) {
                self.add(line);
            }
        }
        Ok(Some(identity))
    }

    fn add(&mut self, line: Counted) {
        let total = self.operations.entry(line.operation).or_default();
        let has_failed = line.error.is_some();
        let outcome = match has_failed {
            true => line.kind.unwrap_or_else(|| "failed".to_owned()),
            false => DONE.to_owned(),
        };
        *total.outcomes.entry(outcome).or_default() += 1;
        if has_failed {
            return;
        }
        total.seconds.observe(&SECONDS, seconds_of(&line.phases));
        if let Some(bytes) = most_bytes(&line.phases, line.bulk_memory.as_ref()) {
            total.bytes.observe(&BYTES, bytes as f64);
        }
        for (seconds, of) in [
            (line.locked_seconds, &mut total.locked),
            (line.frozen_seconds, &mut total.frozen),
        ] {
            if let Some(seconds) = seconds {
                of.observe(&SECONDS, seconds);
            }
        }
    }
}

fn damaged() -> io::Error {
    let text = format!("{TOTALS} is damaged: what earlier operations add up to is lost");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Identity {
    fn of(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests;
