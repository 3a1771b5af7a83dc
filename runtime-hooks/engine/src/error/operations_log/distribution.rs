//! How values are distributed, as Prometheus' histograms have it.

use serde::{Deserialize, Serialize};

/// From what is not noticed to what a caller does not wait for.
pub const SECONDS: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0,
];
const GIB: f64 = (1_u64 << 30) as f64;
/// From 64 MiB to 1 TiB.
pub const BYTES: [f64; 9] = [
    GIB / 16.0,
    GIB / 4.0,
    GIB,
    4.0 * GIB,
    16.0 * GIB,
    64.0 * GIB,
    128.0 * GIB,
    256.0 * GIB,
    1024.0 * GIB,
];

/// How often a value was not more than each of some bounds, which rise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// For each bound; empty as long as there was no value.
    pub counts: Vec<u64>,
    /// How many values there were, and their sum.
    pub count: u64,
    /// The sum of all values.
    pub sum: f64,
}

impl Distribution {
    /// Adds a value, always with the same bounds.
    pub fn observe(&mut self, bounds: &[f64], value: f64) {
        self.counts.resize(bounds.len(), 0);
        for (bound, count) in bounds.iter().zip(&mut self.counts) {
            *count += u64::from(value <= *bound);
        }
        self.count += 1;
        self.sum += value;
    }

    /// Whether it may have been made with these bounds.
    pub(super) fn fits(&self, bounds: &[f64]) -> bool {
        match self.counts.len() {
            0 => self.count == 0,
            length => length == bounds.len(),
        }
    }
}
