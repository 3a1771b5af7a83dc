//! What our CRIU plugin is told before CRIU starts, and what it tells back: files in the operation's directory.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use stasis_config::MemoryTier;
use stasis_memory_store::{ImageId, Report, Tier};

use crate::engine::Engine;
use crate::entry;
use crate::operation::OperationError;
use crate::timeline::Timeline;

/// Far above what is ever written.
const MAX_REPORT_BYTES: u64 = 1 << 20;

/// The files of one order, gone when this is.
#[derive(Debug)]
pub(crate) struct OrderFiles {
    pub(crate) order: PathBuf,
    pub(crate) progress: PathBuf,
    pub(crate) report: PathBuf,
}

impl OrderFiles {
    /// Those in the operation's directory.
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            order: directory.join("memory-order.json"),
            progress: directory.join("memory-progress"),
            report: directory.join("memory-report.json"),
        }
    }

    /// Writes the order, and takes away what was told of an earlier one.
    ///
    /// # Errors
    /// [`OperationError::Io`].
    pub(crate) fn write(&self, order: &impl Serialize) -> Result<(), OperationError> {
        let write = || {
            entry::remove(&self.progress)?;
            entry::remove(&self.report)?;
            fs::write(&self.order, serde_json::to_vec(order)?)
        };
        write().map_err(|source: io::Error| OperationError::Io {
            path: self.order.clone(),
            source,
        })
    }

    /// Waits until nobody works on the order any more: CRIU, or the process that it leaves behind to give tasks their
    /// memory back.
    pub(crate) fn wait_until_over(&self) {
        // An order that is gone is nobody's.
        if let Ok(Some(order)) = entry::open(&self.order) {
            let _ = order.lock();
        }
    }

    /// How it went; `None` if the plugin did not say.
    pub(crate) fn report(&self) -> Option<Report> {
        let file = entry::open(&self.report).ok()??;
        let mut text = Vec::new();
        file.take(MAX_REPORT_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

impl Drop for OrderFiles {
    fn drop(&mut self) {
        // Where an intent stays, they would stay, too.
        for file in [&self.order, &self.progress, &self.report] {
            let _ = entry::remove(file);
        }
    }
}

/// A new name, which nobody can guess or repeat.
///
/// # Errors
/// What the kernel said.
pub(crate) fn new_image_id() -> io::Result<ImageId> {
    let mut random = [0_u8; 16];
    let filled = getrandom(&mut random[..], GetRandomFlags::empty())?;
    // So few come whole (getrandom(2)).
    if filled < random.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(ImageId::new(u128::from_ne_bytes(random)))
}

/// How many threads move memory to or from a tier.
pub(crate) fn threads(engine: &Engine, tier: Tier) -> usize {
    engine.settings.bulk_memory.threads_for(match tier {
        Tier::Portable => MemoryTier::Portable,
        Tier::Disk => MemoryTier::Disk,
        Tier::Ram => MemoryTier::Ram,
    })
}

/// Keeps what the plugin did in the phase `phase`, in which its part was `part`.
pub(crate) fn tell(timeline: &mut Timeline<'_>, phase: &str, part: &str, report: Report) {
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
    // What is no time is not ours to judge.
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    timeline.add_part(&format!("{phase}: {part}"), duration, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_repeated() {
        assert_ne!(new_image_id().unwrap(), new_image_id().unwrap());
    }

    #[test]
    fn a_new_order_takes_away_what_was_told_of_the_last() {
        let directory = tempfile::tempdir().unwrap();
        let files = OrderFiles::of(directory.path());
        assert_eq!(files.report(), None);
        let report = Report {
            areas: 3,
            ..Report::default()
        };
        fs::write(&files.report, serde_json::to_vec(&report).unwrap()).unwrap();
        assert_eq!(files.report(), Some(report));
        files.write(&"order").unwrap();
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
        tell(&mut timeline, "dump", "drain", report.clone());
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
        tell(&mut timeline, "dump", "drain", report);
        assert_eq!(timeline.phases()[0].seconds, 0.0);
    }
}
