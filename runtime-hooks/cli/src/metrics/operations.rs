//! Totals of operations.

use stasis_engine::error::operations_log::{BYTES, Distribution, SECONDS, Total, Totals};

use super::text::Family;

/// The label that kubelet and containerd use for an operation.
const OPERATION: &str = "operation_type";

pub(super) fn families(totals: &Totals) -> Vec<Family> {
    vec![
        outcomes(totals),
        histogram(
            totals,
            "stasis_operation_duration_seconds",
            "How long operations took that did not fail.",
            |total| (&SECONDS, &total.seconds),
        ),
        histogram(
            totals,
            "stasis_operation_locked_seconds",
            "For how long they kept CUDA processes locked.",
            |total| (&SECONDS, &total.locked),
        ),
        histogram(
            totals,
            "stasis_operation_frozen_seconds",
            "For how long CRIU kept all processes stopped.",
            |total| (&SECONDS, &total.frozen),
        ),
        histogram(
            totals,
            "stasis_operation_size_bytes",
            "The most that one phase of them has moved.",
            |total| (&BYTES, &total.bytes),
        ),
    ]
}

fn outcomes(totals: &Totals) -> Family {
    let mut family = Family::counter(
        "stasis_operations_total",
        "Operations; the outcome is \"done\" or the kind of the error.",
    );
    for (operation, total) in &totals.operations {
        for (outcome, count) in &total.outcomes {
            let labels = [(OPERATION, operation.as_str()), ("outcome", outcome)];
            family.add(&labels, *count as f64);
        }
    }
    family
}

fn histogram(
    totals: &Totals,
    name: &'static str,
    help: &'static str,
    of: fn(&Total) -> (&'static [f64], &Distribution),
) -> Family {
    let mut family = Family::histogram(name, help);
    for (operation, total) in &totals.operations {
        let (bounds, values) = of(total);
        if values.count > 0 {
            family.add_histogram(&[(OPERATION, operation)], bounds, values);
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_and_each_distribution_is_shown() {
        let mut totals = Totals::default();
        let checkpoint = totals
            .operations
            .entry("checkpoint".to_owned())
            .or_default();
        checkpoint.outcomes.insert("done".to_owned(), 1);
        checkpoint.outcomes.insert("no-space".to_owned(), 2);
        checkpoint.seconds.observe(&SECONDS, 3.0);
        checkpoint.locked.observe(&SECONDS, 0.2);
        checkpoint.bytes.observe(&BYTES, (2_u64 << 30) as f64);
        let text: String = families(&totals).iter().map(Family::to_string).collect();
        for sample in [
            "stasis_operations_total{operation_type=\"checkpoint\",outcome=\"done\"} 1",
            "stasis_operations_total{operation_type=\"checkpoint\",outcome=\"no-space\"} 2",
            "stasis_operation_duration_seconds_bucket{operation_type=\"checkpoint\",le=\"2.5\"} 0",
            "stasis_operation_duration_seconds_bucket{operation_type=\"checkpoint\",le=\"5\"} 1",
            "stasis_operation_duration_seconds_count{operation_type=\"checkpoint\"} 1",
            "stasis_operation_locked_seconds_sum{operation_type=\"checkpoint\"} 0.2",
            "stasis_operation_size_bytes_sum{operation_type=\"checkpoint\"} 2147483648",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(!text.contains("frozen_seconds_count"), "{text}");
    }
}
