//! `progress.json`: what the operation that works on a container does now, for people who wait.
//!
//! The file is in the operation's own directory from its first phase until it is over. It decides
//! nothing: that it cannot be written, or tells less than it could, changes nothing for the
//! operation. What has to survive a crash is the intent (`operation.rs`); this file need not.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::entry;
use crate::error::Verb;
use crate::gauge::Gauge;
use crate::operation::Operation;
use crate::process::ProcessRef;

/// The file's name in an operation's directory.
pub const FILE_NAME: &str = "progress.json";
const STAGED: &str = "progress.new";
/// How often a phase that moves bytes is looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// Far above what is ever written.
const MAX_BYTES: u64 = 1 << 16;

/// An operation that is under way, as its file tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UnderWay {
    /// "checkpoint", "restore" or "resume".
    pub operation: String,
    /// The process that carries it out.
    pub pid: i32,
    /// When that process was started, in clock ticks since boot: another that has got the same pid
    /// was started at another time.
    #[serde(default)]
    pub start_time: u64,
    /// When the operation began, RFC 3339.
    pub began: String,
    /// What it does now, in the words of docs/design.md.
    pub phase: String,
    /// How many seconds after the operation that phase began.
    pub phase_since: f64,
    /// How many bytes the phase has moved, as far as that shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_done: Option<u64>,
    /// How many it has to move, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<u64>,
}

impl UnderWay {
    /// Reads the file of an operation's directory. `None`: there is none, so no operation, or one
    /// that has not begun its first phase.
    ///
    /// # Errors
    /// What the kernel said, or that it is no such file.
    pub fn read(directory: &Path) -> io::Result<Option<Self>> {
        let Some(file) = entry::open(&directory.join(FILE_NAME))? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut text)?;
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// Whether the operation still lives: one that was killed leaves its file where an intent is.
    ///
    /// # Errors
    /// What the kernel said about the process.
    pub fn is_alive(&self) -> io::Result<bool> {
        let process = ProcessRef::open(self.pid)?;
        Ok(process.is_some_and(|process| process.start_time() == self.start_time))
    }
}

/// Writes the progress of one operation, and removes it when dropped. It cannot outlive the right
/// to operate on the container: the file of the next operation would be removed.
#[derive(Debug)]
pub struct Progress<'o> {
    _operation: &'o Operation,
    /// Opened once: when the operation forgets itself, the next one may have a directory of the
    /// same name before this one's files are cleared away.
    directory: Option<OwnedFd>,
    now: UnderWay,
    /// When the operation began.
    start: Instant,
    elapsed_at_start: Duration,
}

impl<'o> Progress<'o> {
    /// Of an operation that is about to begin its first phase.
    #[must_use]
    pub fn begin(engine: &Engine, operation: &'o Operation, verb: Verb) -> Self {
        // A clock that was set back costs no more than the offset.
        let elapsed = engine.began.elapsed().unwrap_or_default();
        Self::new(operation, verb, engine.began_text(), elapsed)
    }

    fn new(operation: &'o Operation, verb: Verb, began: String, elapsed: Duration) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let own = ProcessRef::open(pid).ok().flatten();
        Self {
            _operation: operation,
            directory: File::open(operation.directory()).ok().map(OwnedFd::from),
            now: UnderWay {
                operation: verb.to_string(),
                pid,
                start_time: own.map_or(0, |process| process.start_time()),
                began,
                ..UnderWay::default()
            },
            start: Instant::now(),
            elapsed_at_start: elapsed,
        }
    }

    /// Does `work` and tells meanwhile that it is the phase `name`, and how far it has come.
    pub fn during<T>(
        &mut self,
        name: &str,
        gauge: Option<&mut Gauge<'_>>,
        work: impl FnOnce() -> T,
    ) -> T {
        name.clone_into(&mut self.now.phase);
        let elapsed = self.elapsed_at_start + self.start.elapsed();
        // A millisecond is as much as anybody reads.
        self.now.phase_since = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
        self.write(&self.now);
        let Some(gauge) = gauge else {
            return work();
        };
        let this = &*self;
        thread::scope(|scope| {
            // Closed when `work` is over, however it ends; the scope waits for the sampler then, so
            // that nothing is written after the phase.
            let (_over, is_over) = mpsc::channel::<()>();
            let sampler = thread::Builder::new().name("progress".to_owned());
            let _ = sampler.spawn_scoped(scope, move || this.sample(gauge, &is_over));
            work()
        })
    }

    fn sample(&self, gauge: &mut Gauge<'_>, is_over: &Receiver<()>) {
        gauge.start();
        loop {
            let reading = gauge.read();
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

    /// Whole or not at all, but not on disk: it is worth nothing after a crash.
    fn write(&self, under_way: &UnderWay) {
        let write = |directory: &OwnedFd| -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
            let text = serde_json::to_vec(under_way)?;
            let staged = openat(directory, STAGED, flags, Mode::RUSR | Mode::WUSR)?;
            File::from(staged).write_all(&text)?;
            Ok(renameat(directory, STAGED, directory, FILE_NAME)?)
        };
        // A full disk must not stop an operation; what was there before is still true enough.
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

/// Removes what a killed operation told.
pub(crate) fn remove(directory: &Path) {
    for name in [FILE_NAME, STAGED] {
        let _ = fs::remove_file(directory.join(name));
    }
}

#[cfg(test)]
mod tests;
