//! How long each phase of an operation took, and how many bytes it moved. The phase under way is
//! told in the operation's progress file.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stasis_memory_store::Report;

use crate::gauge::Gauge;
use crate::progress::Progress;

/// A finished phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// What was done, in the words of docs/design.md.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// How many bytes of GPU or bulk memory it moved, if it moved any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The rate that follows from both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gib_per_second: Option<f64>,
}

/// The phases of one operation, in order.
#[derive(Debug, Default)]
pub struct Timeline<'o> {
    phases: Vec<Phase>,
    notes: Vec<String>,
    bulk_memory: Option<Report>,
    progress: Option<Progress<'o>>,
}

impl<'o> Timeline<'o> {
    /// A timeline that tells each phase while it lasts.
    #[must_use]
    pub fn told_by(progress: Progress<'o>) -> Self {
        Self {
            phases: Vec::new(),
            notes: Vec::new(),
            bulk_memory: None,
            progress: Some(progress),
        }
    }

    /// Does `work` and records it as the phase `name`, even if it fails.
    pub fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        self.record(name, None, work)
    }

    /// As [`Timeline::time`], for work whose progress shows on `gauge`.
    pub fn time_moving<T>(
        &mut self,
        name: &str,
        mut gauge: Gauge<'_>,
        work: impl FnOnce() -> T,
    ) -> T {
        self.record(name, Some(&mut gauge), work)
    }

    fn record<T>(
        &mut self,
        name: &str,
        gauge: Option<&mut Gauge<'_>>,
        work: impl FnOnce() -> T,
    ) -> T {
        let bytes = gauge.as_ref().and_then(|gauge| gauge.gpu_bytes());
        let start = Instant::now();
        let result = match &mut self.progress {
            Some(progress) => progress.during(name, gauge, work),
            None => work(),
        };
        self.phases.push(Phase::new(name, start.elapsed(), bytes));
        result
    }

    /// Adds what was a part of the last phase, as somebody else has measured it.
    pub fn add_part(&mut self, name: &str, duration: Duration, bytes: Option<u64>) {
        self.phases.push(Phase::new(name, duration, bytes));
    }

    /// Keeps something that whoever reads the log later has to know, e.g. a check that was overridden.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Keeps what our CRIU plugin has told.
    pub(crate) fn set_bulk_memory(&mut self, report: Report) {
        self.bulk_memory = Some(report);
    }

    /// What our CRIU plugin has told.
    pub(crate) fn bulk_memory(&self) -> Option<&Report> {
        self.bulk_memory.as_ref()
    }

    /// What was noted so far.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The phases so far.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }
}

impl Phase {
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
    fn a_phase_tells_its_rate() {
        let phase = Phase::new("gpu checkpoint", Duration::from_secs(2), Some(3 << 30));
        assert_eq!(phase.gib_per_second, Some(1.5));
        assert_eq!(
            phase.to_string(),
            "gpu checkpoint 2.000 s (3072 MiB, 1.50 GiB/s)"
        );
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
