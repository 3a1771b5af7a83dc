//! Measured values, and the verdict on them.

use std::fmt;
use std::time::Duration;

/// Measurements of one thing, at least one.
#[derive(Debug, Clone)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn milliseconds(times: impl IntoIterator<Item = Duration>) -> Self {
        Self::new(
            times
                .into_iter()
                .map(|time| time.as_secs_f64() * 1000.0)
                .collect(),
        )
    }

    pub(crate) fn median(&self) -> f64 {
        let (lower, upper) = ((self.0.len() - 1) / 2, self.0.len() / 2);
        f64::midpoint(self.0[lower], self.0[upper])
    }
}

/// Prints the median, the lowest and the highest.
impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lowest, highest) = (self.0[0], self.0[self.0.len() - 1]);
        write!(
            formatter,
            "{:.2} ({lowest:.2} to {highest:.2})",
            self.median()
        )
    }
}

/// The limit of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

/// A value with its aim.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    value: f64,
    aim: Aim,
    /// The values that this one was made from; empty if it was measured directly.
    parts: String,
}

impl Figure {
    pub(crate) fn value(value: f64, at_most: f64) -> Self {
        Self {
            value,
            aim: Aim::AtMost(at_most),
            parts: String::new(),
        }
    }

    /// Makes a figure from other values, which `parts` lists.
    pub(crate) fn of(parts: String, value: f64, aim: Aim) -> Self {
        Self { value, aim, parts }
    }

    /// The ratio of the medians of our shim and containerd's.
    pub(crate) fn ratio(go: &Sample, stasis: &Sample, unit: &str, at_most: f64) -> Self {
        Self {
            value: stasis.median() / go.median(),
            aim: Aim::AtMost(at_most),
            parts: format!("go {go} {unit}, stasis {stasis} {unit}, ratio "),
        }
    }

    pub(crate) fn passes(&self) -> bool {
        match self.aim {
            Aim::AtMost(most) => self.value <= most,
            Aim::AtLeast(least) => self.value >= least,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passes() { "PASS" } else { "FAIL" };
        let Self { value, aim, parts } = self;
        write!(formatter, "{parts}{value:.3}, {aim}: {verdict}")
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Aim::AtMost(most) => write!(formatter, "at most {most}"),
            Aim::AtLeast(least) => write!(formatter, "at least {least}"),
        }
    }
}
