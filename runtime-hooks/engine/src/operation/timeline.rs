//! How long each phase of an operation took, and how many bytes it moved. The current phase is
//! written to the operation's progress file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_gpu::cuda::Copying;
use stasis_linux::escape::escaped;
use stasis_memory_store::StoreStatistics;

use crate::operation::estimate::ProgressEstimate;
use crate::operation::progress::Progress;

/// A finished phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name, e.g. "gpu checkpoint"; a part of a phase has the phase in front: "roll back:
    /// hook".
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// How many bytes of GPU or bulk memory it moved, if it moved any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gib_per_second: Option<f64>,
}

/// For how long a checkpoint kept its container from working.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stop {
    /// Seconds in which at least one CUDA process was locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_seconds: Option<f64>,
    /// Seconds in which CRIU kept all processes stopped, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen_seconds: Option<f64>,
}

/// The phases of one operation, in order.
#[derive(Debug, Default)]
pub struct Timeline<'o> {
    phases: Vec<Phase>,
    notes: Vec<String>,
    /// For how long the container was kept from working.
    pub(crate) stop: Stop,
    /// How many bytes of GPU contents were copied by many threads, if any were.
    pub(crate) shared_out: Option<u64>,
    /// The report of our CRIU plugin.
    pub(crate) bulk_memory: Option<StoreStatistics>,
    /// The directory of the operation's image, if it has one.
    pub(crate) image: Option<PathBuf>,
    progress: Option<Progress<'o>>,
}

impl<'o> Timeline<'o> {
    /// A timeline that writes each phase to the progress file while it lasts.
    #[must_use]
    pub fn with_progress(progress: Progress<'o>) -> Self {
        Self {
            progress: Some(progress),
            ..Self::default()
        }
    }

    /// Does `work` and records it as the phase `name`, even if it fails.
    pub fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        self.record(name, None, work)
    }

    /// As [`Timeline::time`], for work whose progress `estimate` measures.
    pub(crate) fn time_moving<T>(
        &mut self,
        name: &str,
        mut estimate: ProgressEstimate<'_>,
        work: impl FnOnce() -> T,
    ) -> T {
        self.record(name, Some(&mut estimate), work)
    }

    fn record<T>(
        &mut self,
        name: &str,
        estimate: Option<&mut ProgressEstimate<'_>>,
        work: impl FnOnce() -> T,
    ) -> T {
        let bytes = estimate.as_ref().and_then(|estimate| estimate.gpu_bytes());
        let start = Instant::now();
        let result = match &mut self.progress {
            Some(progress) => progress.during(name, estimate, work),
            None => work(),
        };
        self.phases.push(Phase::new(name, start.elapsed(), bytes));
        result
    }

    /// Adds a phase, or a part of the last one, that was measured elsewhere.
    pub fn add(&mut self, name: &str, duration: Duration, bytes: Option<u64>) {
        self.phases.push(Phase::new(name, duration, bytes));
    }

    /// Adds a note for readers of the log, e.g. that a check was overridden. Names and paths of a
    /// container may be in it, so control characters are escaped.
    pub fn note(&mut self, text: impl AsRef<str>) {
        self.notes.push(escaped(text.as_ref().as_bytes()));
    }

    /// Sets how the driver's copying went.
    pub(crate) fn set_copying(&mut self, copying: Copying) {
        for note in copying.notes {
            self.note(note);
        }
        self.shared_out = Some(copying.shared_out).filter(|bytes| *bytes > 0);
    }

    /// Adds the directory of the operation's image.
    #[must_use]
    pub fn of_image(self, directory: &Path) -> Self {
        Self {
            image: Some(directory.to_owned()),
            ..self
        }
    }

    /// The notes so far.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The phases so far.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }
}

/// How long phases took. A part of a phase is in the phase's time.
pub fn seconds_of(phases: &[Phase]) -> f64 {
    let whole = phases.iter().filter(|phase| !phase.is_part());
    // The sum of none is -0.0, and would be shown as that.
    whole
        .map(|phase| phase.seconds)
        .fold(0.0, |sum, seconds| sum + seconds)
}

/// The most bytes that one phase, or bulk memory, has moved: the same contents go from phase to
/// phase.
pub fn most_bytes(phases: &[Phase], bulk_memory: Option<&StoreStatistics>) -> Option<u64> {
    let phases = phases.iter().filter_map(|phase| phase.bytes);
    let bulk = bulk_memory.map(|report| report.bytes);
    phases.chain(bulk).max().filter(|bytes| *bytes > 0)
}

impl Phase {
    /// Whether it is a part of the phase before it ("roll back: hook").
    pub fn is_part(&self) -> bool {
        self.name.contains(": ")
    }

    fn new(name: &str, duration: Duration, bytes: Option<u64>) -> Self {
        let seconds = duration.as_secs_f64();
        Self {
            name: name.to_owned(),
            seconds,
            bytes,
            gib_per_second: bytes
                .filter(|_| seconds > 0.0)
                .map(|bytes| bytes as f64 / f64::from(1 << 30) / seconds),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.3} s", self.name, self.seconds)?;
        match (self.bytes, self.gib_per_second) {
            (Some(bytes), Some(rate)) => {
                write!(f, " ({} MiB, {rate:.2} GiB/s)", bytes >> 20)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_a_rate() {
        let phase = Phase::new("gpu checkpoint", Duration::from_secs(2), Some(3 << 30));
        assert_eq!(phase.gib_per_second, Some(1.5));
        assert_eq!(
            phase.to_string(),
            "gpu checkpoint 2.000 s (3072 MiB, 1.50 GiB/s)"
        );
    }

    #[test]
    fn a_note_is_one_line_that_does_not_act_on_a_terminal() {
        let mut timeline = Timeline::default();
        timeline.note("left: /tmp/a\n\x1b[2Jb");
        assert_eq!(timeline.notes(), ["left: /tmp/a\\n\\u{1b}[2Jb"]);
    }

    #[test]
    fn no_phase_takes_no_time() {
        assert_eq!(format!("{:.3}", seconds_of(&[])), "0.000");
    }

    #[test]
    fn failed_work_is_recorded_too() {
        let mut timeline = Timeline::default();
        let result: Result<(), ()> = timeline.time("lock", || Err(()));
        assert!(result.is_err());
        assert_eq!(timeline.phases()[0].name, "lock");
        assert_eq!(timeline.phases()[0].bytes, None);
    }
}
