//! The request to our CRIU plugin, its progress and its report: files in the operation's directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stasis_config::{MemoryTier, Settings};
use stasis_linux::file;
use stasis_memory_store::{MAX_REPORT_BYTES, Report, Tier};

use crate::host::file_lock::{Sharing, lock_within};
use crate::operation::OperationError;
use crate::operation::timeline::Timeline;

/// Slower than any machine gives memory back, in bytes a second.
const SLOWEST: u64 = 100 << 20;

/// The files of one request, which are removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct RequestFiles {
    pub(crate) request: PathBuf,
    pub(crate) progress: PathBuf,
    pub(crate) report: PathBuf,
}

impl RequestFiles {
    /// The files in an operation's directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            request: directory.join("memory-request.json"),
            progress: directory.join("memory-progress"),
            report: directory.join("memory-report.json"),
        }
    }

    /// The same of what is stored once the processes go on ([`super::dump`]).
    pub(crate) fn of_tier(directory: &Path) -> Self {
        Self {
            request: directory.join("memory-request-of-tier.json"),
            progress: directory.join("memory-progress-of-tier"),
            report: directory.join("memory-report-of-tier.json"),
        }
    }

    /// Writes the request, and removes the progress and the report of an earlier one.
    ///
    /// # Errors
    /// [`OperationError::Io`].
    pub(crate) fn write(&self, request: &impl Serialize) -> Result<(), OperationError> {
        let write = || {
            file::remove(&self.progress)?;
            file::remove(&self.report)?;
            fs::write(&self.request, serde_json::to_vec(request)?)
        };
        write().map_err(|source: io::Error| OperationError::Io {
            path: self.request.clone(),
            source,
        })
    }

    /// Waits until the request is done: CRIU, and the process that it leaves behind to give tasks
    /// their memory back, lock the file while they work on it. No longer than `limit`, and as long
    /// as the slowest machine needs to give all back that was taken.
    ///
    /// # Errors
    /// Why tasks lack their memory.
    pub(crate) fn wait_until_done(&self, limit: Duration) -> Result<(), String> {
        // Nobody works on a request whose file is gone.
        let Ok(Some(request)) = file::open(&self.request) else {
            return Ok(());
        };
        let taken = self.report().map_or(0, |report| report.bytes);
        let limit = limit.saturating_add(Duration::from_secs(taken / SLOWEST));
        let locked = lock_within(limit, &request, Sharing::Exclusive);
        locked.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => format!(
                "the process that gives it back (criu) has not done so within {} s",
                limit.as_secs_f64()
            ),
            _ => error.to_string(),
        })
    }

    /// The same, and why tasks lack their memory if they do.
    pub(crate) fn not_returned(&self, limit: Duration) -> Option<String> {
        match self.wait_until_done(limit) {
            Err(why) => Some(why),
            Ok(()) => self.report()?.not_returned,
        }
    }

    /// Reads the plugin's report; `None` if there is none.
    pub(crate) fn report(&self) -> Option<Report> {
        let text = file::read(&self.report, MAX_REPORT_BYTES).ok()??;
        serde_json::from_slice(&text).ok()
    }
}

impl Drop for RequestFiles {
    fn drop(&mut self) {
        // The operation's directory stays if there is an intent.
        for file in [&self.request, &self.progress, &self.report] {
            let _ = file::remove(file);
        }
    }
}

/// How many threads move memory to or from a tier.
pub(crate) fn threads(settings: &Settings, tier: Tier) -> usize {
    settings.bulk_memory.threads_for(match tier {
        Tier::Portable => MemoryTier::Portable,
        Tier::Disk => MemoryTier::Disk,
        Tier::Ram => MemoryTier::Ram,
    })
}

/// Adds the plugin's report to the timeline: its work is the part `part` of the phase `phase`.
pub(crate) fn record_report(timeline: &mut Timeline<'_>, phase: &str, part: &str, report: Report) {
    if report.areas > 0 {
        add_part(
            timeline,
            phase,
            part,
            report.copy_seconds,
            Some(report.bytes),
        );
    }
    if report.empty_seconds > 0.0 {
        add_part(timeline, phase, "empty", report.empty_seconds, None);
    }
    timeline.set_bulk_memory(report);
}

fn add_part(
    timeline: &mut Timeline<'_>,
    phase: &str,
    part: &str,
    seconds: f64,
    bytes: Option<u64>,
) {
    // A value that is not a duration counts as zero.
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    timeline.add(&format!("{phase}: {part}"), duration, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_request_removes_the_report_of_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let files = RequestFiles::of(directory.path());
        assert_eq!(files.report(), None);
        let report = Report {
            areas: 3,
            ..Report::default()
        };
        fs::write(&files.report, serde_json::to_vec(&report).unwrap()).unwrap();
        assert_eq!(files.report(), Some(report));
        files.write(&"request").unwrap();
        assert_eq!(files.report(), None);
        fs::write(&files.report, "{").unwrap();
        assert_eq!(files.report(), None, "cut off");
    }

    #[test]
    fn a_report_becomes_parts_of_a_phase() {
        let mut timeline = Timeline::default();
        timeline.time("dump", || ());
        let report = Report {
            processes: 1,
            areas: 2,
            bytes: 64 << 20,
            copy_seconds: 0.5,
            ..Report::default()
        };
        record_report(&mut timeline, "dump", "drain", report.clone());
        let names: Vec<_> = timeline.phases().iter().map(|phase| &phase.name).collect();
        assert_eq!(names, ["dump", "dump: drain"]);
        assert_eq!(timeline.phases()[1].bytes, Some(64 << 20));
        assert_eq!(timeline.bulk_memory(), Some(&report));
    }

    #[test]
    fn a_time_that_makes_no_sense_is_none() {
        let mut timeline = Timeline::default();
        let report = Report {
            areas: 1,
            copy_seconds: -1.0,
            ..Report::default()
        };
        record_report(&mut timeline, "dump", "drain", report);
        assert_eq!(timeline.phases()[0].seconds, 0.0);
    }
}
