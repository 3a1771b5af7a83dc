//! How long each phase of an operation took, and how many bytes it moved.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A finished phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// What was done, in the words of docs/design.md.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// How many bytes of GPU memory it moved, if it moved any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The rate that follows from both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gib_per_second: Option<f64>,
}

/// The phases of one operation, in order.
#[derive(Debug, Default)]
pub struct Timeline {
    phases: Vec<Phase>,
}

impl Timeline {
    /// Does `work` and records it as the phase `name`, even if it fails.
    pub fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        self.time_bytes(name, None, work)
    }

    /// As [`Timeline::time`], for work that moves `bytes` of GPU memory.
    pub fn time_bytes<T>(&mut self, name: &str, bytes: Option<u64>, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.phases.push(Phase::new(name, start.elapsed(), bytes));
        result
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
