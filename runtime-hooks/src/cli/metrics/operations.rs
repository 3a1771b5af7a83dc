//! What `operations.log` tells.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::text::{Family, Histogram};
use crate::cli::log::line::{Line, read};

/// From what is not noticed to what a caller does not wait for.
const SECONDS: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0,
];
const GIB: f64 = (1_u64 << 30) as f64;
/// From 64 MiB to 1 TiB.
const BYTES: [f64; 9] = [
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
/// The outcome of one that did not fail.
const DONE: &str = "done";
/// The label that kubelet and containerd have for it.
const OPERATION: &str = "operation_type";

/// The operations in the log.
#[derive(Debug, Default)]
struct Operations {
    /// By operation and outcome.
    total: BTreeMap<(String, String), u64>,
    done: BTreeMap<String, Done>,
}

/// Those of one kind that did not fail.
#[derive(Debug)]
struct Done {
    seconds: Histogram,
    locked: Histogram,
    frozen: Histogram,
    bytes: Histogram,
}

pub(super) fn families(log_dir: &Path) -> io::Result<Vec<Family>> {
    let mut operations = Operations::default();
    read(log_dir, |line| operations.add(&line))?;
    Ok(operations.families())
}

impl Operations {
    fn add(&mut self, line: &Line) {
        let kind = line.kind.as_deref().unwrap_or("failed");
        let outcome = if line.has_failed() { kind } else { DONE };
        let key = (line.operation.clone(), outcome.to_owned());
        *self.total.entry(key).or_default() += 1;
        if line.has_failed() {
            return;
        }
        let done = self.done.entry(line.operation.clone()).or_default();
        done.seconds.observe(line.seconds());
        if let Some(bytes) = line.bytes() {
            done.bytes.observe(bytes as f64);
        }
        for (field, histogram) in [
            ("locked_seconds", &mut done.locked),
            ("frozen_seconds", &mut done.frozen),
        ] {
            if let Some(seconds) = line.more.get(field).and_then(serde_json::Value::as_f64) {
                histogram.observe(seconds);
            }
        }
    }

    fn families(&self) -> Vec<Family> {
        let mut total = Family::counter(
            "stasis_operations_total",
            "Operations in operations.log; the outcome is \"done\" or the kind of the error.",
        );
        for ((operation, outcome), count) in &self.total {
            total.add(
                &[(OPERATION, operation), ("outcome", outcome)],
                *count as f64,
            );
        }
        vec![
            total,
            self.histogram(
                "stasis_operation_duration_seconds",
                "How long operations took that did not fail.",
                |done| &done.seconds,
            ),
            self.histogram(
                "stasis_operation_locked_seconds",
                "For how long they kept CUDA processes locked.",
                |done| &done.locked,
            ),
            self.histogram(
                "stasis_operation_frozen_seconds",
                "For how long CRIU kept all processes stopped.",
                |done| &done.frozen,
            ),
            self.histogram(
                "stasis_operation_size_bytes",
                "The most that one phase of them has moved.",
                |done| &done.bytes,
            ),
        ]
    }

    fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        of: fn(&Done) -> &Histogram,
    ) -> Family {
        let mut family = Family::histogram(name, help);
        for (operation, done) in &self.done {
            let histogram = of(done);
            if !histogram.is_empty() {
                family.add_histogram(&[(OPERATION, operation)], histogram);
            }
        }
        family
    }
}

impl Default for Done {
    fn default() -> Self {
        Self {
            seconds: Histogram::new(&SECONDS),
            locked: Histogram::new(&SECONDS),
            frozen: Histogram::new(&SECONDS),
            bytes: Histogram::new(&BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(operation: &str, error: Option<&str>, more: &serde_json::Value) -> Line {
        let mut line = serde_json::json!({
            "time": "2026-11-25T07:00:00Z",
            "operation": operation,
            "container": "job",
            "error": error,
            "kind": error.map(|_| "no-space"),
            "phases": [{"name": "dump", "seconds": 3.0, "bytes": 2_u64 << 30}],
        });
        for (key, value) in more.as_object().unwrap() {
            line[key] = value.clone();
        }
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn outcomes_are_counted_and_what_failed_is_not_timed() {
        let mut operations = Operations::default();
        let stop = serde_json::json!({ "locked_seconds": 0.2, "frozen_seconds": 0.04 });
        operations.add(&line("checkpoint", None, &stop));
        operations.add(&line("checkpoint", Some("full"), &stop));
        operations.add(&line("restore", None, &serde_json::json!({})));
        let text: String = operations
            .families()
            .iter()
            .map(Family::to_string)
            .collect();
        for sample in [
            "stasis_operations_total{operation_type=\"checkpoint\",outcome=\"done\"} 1",
            "stasis_operations_total{operation_type=\"checkpoint\",outcome=\"no-space\"} 1",
            "stasis_operation_duration_seconds_bucket{operation_type=\"checkpoint\",le=\"2.5\"} 0",
            "stasis_operation_duration_seconds_bucket{operation_type=\"checkpoint\",le=\"5\"} 1",
            "stasis_operation_duration_seconds_count{operation_type=\"checkpoint\"} 1",
            "stasis_operation_locked_seconds_sum{operation_type=\"checkpoint\"} 0.2",
            "stasis_operation_frozen_seconds_bucket{operation_type=\"checkpoint\",le=\"0.05\"} 1",
            "stasis_operation_size_bytes_sum{operation_type=\"restore\"} 2147483648",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(!text.contains("locked_seconds_count{operation_type=\"restore\"}"));
    }
}
