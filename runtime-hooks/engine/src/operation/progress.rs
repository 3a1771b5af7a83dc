//! `progress.json`: the current phase of an operation, for people who wait.
//!
//! The file is in the operation's directory from its first phase until its end. No decision
//! depends on it: an operation goes on if the file cannot be written or is incomplete. The file
//! need not survive a crash; the intent (`operation/intent.rs`) does.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use serde::{Deserialize, Serialize};
use stasis_host::json_record;
use stasis_linux::ProcessRef;

use crate::context::Context;
use crate::operation::Operation;
use crate::operation::estimate::ProgressEstimate;
use crate::operation::verb::Verb;

/// The file's name in an operation's directory.
pub const FILE_NAME: &str = "progress.json";
const STAGED: &str = "progress.new";
/// How often the progress of a phase that moves bytes is sampled.
const INTERVAL: Duration = Duration::from_millis(500);
/// Far larger than any file written here.
const MAX_BYTES: u64 = 1 << 16;

/// An operation that is under way, as described by its file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UnderWay {
    /// "checkpoint", "restore" or "resume".
    pub operation: String,
    /// The process that carries it out.
    pub pid: i32,
    /// When that process started, in clock ticks since boot: another process with the same pid has
    /// another start time.
    #[serde(default)]
    pub start_time: u64,
    /// When the operation began, RFC 3339.
    pub began: String,
    /// The current phase, by its name in `operations.log`.
    pub phase: String,
    /// When the phase began, in seconds after the operation began.
    pub phase_since: f64,
    /// How many bytes the phase has moved, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<u64>,
    /// How many bytes the phase has to move, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
}

impl UnderWay {
    /// Reads the file in an operation's directory. `None` if there is no file: there is no
    /// operation, or it has not begun its first phase.
    ///
    /// # Errors
    /// The I/O error; `InvalidData` for a file with other contents.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        json_record::read(&directory.join(FILE_NAME), MAX_BYTES)
    }

    /// Whether the operation's process is alive: a killed process leaves its file beside an intent.
    ///
    /// # Errors
    /// The error of opening the process.
    pub fn is_alive(&self) -> io::Result<bool> {
        let process = ProcessRef::open(self.pid)?;
        Ok(process.is_some_and(|process| process.start_time() == self.start_time))
    }
}

/// Writes the progress of one operation, and removes the file when dropped. It cannot outlive the
/// operation's lock: it would remove the file of the next operation.
#[derive(Debug)]
pub struct Progress<'o> {
    _operation: &'o Operation,
    /// Opened once: after [`Operation::clear`] the next operation may create a directory of the
    /// same name before this value is dropped.
    directory: Option<OwnedFd>,
    now: UnderWay,
    /// When the operation began.
    start: Instant,
    elapsed_at_start: Duration,
}

impl<'o> Progress<'o> {
    /// For an operation that is about to begin its first phase.
    #[must_use]
    pub fn begin(context: &Context, operation: &'o Operation, verb: Verb) -> Self {
        // A clock that was set back costs no more than the offset.
        let elapsed = context.began.elapsed().unwrap_or_default();
        Self::new(operation, verb, context.began_text(), elapsed)
    }

    fn new(operation: &'o Operation, verb: Verb, began: String, elapsed: Duration) -> Self {
        Self {
            _operation: operation,
            directory: File::open(operation.directory()).ok().map(OwnedFd::from),
            now: UnderWay {
                operation: verb.to_string(),
                pid: rustix::process::getpid().as_raw_nonzero().get(),
                start_time: ProcessRef::own().map_or(0, |own| own.start_time()),
                began,
                ..UnderWay::default()
            },
            start: Instant::now(),
            elapsed_at_start: elapsed,
        }
    }

    /// Does `work` as the phase `name`, and writes meanwhile how far it has come.
    pub fn during<T>(
        &mut self,
        name: &str,
        estimate: Option<&mut ProgressEstimate<'_>>,
        work: impl FnOnce() -> T,
    ) -> T {
        name.clone_into(&mut self.now.phase);
        let elapsed = self.elapsed_at_start + self.start.elapsed();
        // Milliseconds are precise enough for a reader.
        self.now.phase_since = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
        self.write(&self.now);
        let Some(estimate) = estimate else {
            return work();
        };
        let this = &*self;
        thread::scope(|scope| {
            // The channel closes when `work` is over, however it ends; the scope then waits for the
            // sampler, so that nothing is written after the phase.
            let (_over, is_over) = mpsc::channel::<()>();
            let sampler = thread::Builder::new().name("progress".to_owned());
            // A fault in an estimate must not fail the work.
            let sample = move || this.sample(estimate, &is_over);
            let _ = sampler.spawn_scoped(scope, || catch_unwind(AssertUnwindSafe(sample)));
            work()
        })
    }

    fn sample(&self, estimate: &mut ProgressEstimate<'_>, is_over: &Receiver<()>) {
        estimate.start();
        loop {
            let reading = estimate.read();
            self.write(&UnderWay {
                bytes_done: reading.done,
                bytes_total: reading.total,
                ..self.now.clone()
            });
            if is_over.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Writes the file atomically, but without fsync: after a crash it is not needed. Not by
    /// `file::replace`, whose path may be the next operation's directory by now.
    fn write(&self, under_way: &UnderWay) {
        let write = |directory: &OwnedFd| -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
            let text = serde_json::to_vec(under_way)?;
            let staged = openat(directory, STAGED, flags, Mode::RUSR | Mode::WUSR)?;
            File::from(staged).write_all(&text)?;
            Ok(renameat(directory, STAGED, directory, FILE_NAME)?)
        };
        // A full disk must not stop an operation; the earlier file is accurate enough.
        let _ = self.directory.as_ref().map(write);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        for name in [FILE_NAME, STAGED] {
            if let Some(directory) = &self.directory {
                let _ = unlinkat(directory, name, AtFlags::empty());
            }
        }
    }
}

/// Removes the progress file of a killed operation.
pub(crate) fn remove(directory: &Path) {
    for name in [FILE_NAME, STAGED] {
        let _ = fs::remove_file(directory.join(name));
    }
}

#[cfg(test)]
mod tests;
