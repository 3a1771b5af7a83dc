//! Prometheus' text format: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::{self, Write};

use stasis_engine::error::chain;
use stasis_engine::error::operations_log::Distribution;

use crate::answer::show_note;
use crate::command_error::CommandError;

/// The samples of one name.
#[derive(Debug)]
pub(super) struct Family {
    name: &'static str,
    /// Its type.
    kind: &'static str,
    help: &'static str,
    samples: String,
}

impl Family {
    pub(super) fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, "counter", help)
    }

    pub(super) fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, "gauge", help)
    }

    pub(super) fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(name, "histogram", help)
    }

    fn new(name: &'static str, kind: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind,
            help,
            samples: String::new(),
        }
    }

    /// Adds the sample with these labels. An empty label counts as absent.
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        self.sample("", labels, value);
    }

    /// Adds the distribution of values that were observed with these bounds.
    pub(super) fn add_histogram(
        &mut self,
        labels: &[(&str, &str)],
        bounds: &[f64],
        values: &Distribution,
    ) {
        let bounds = bounds.iter().map(f64::to_string);
        let counts = values.counts.iter().copied();
        let all = bounds
            .zip(counts)
            .chain([("+Inf".to_owned(), values.count)]);
        for (bound, count) in all {
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample("_bucket", &labels, count as f64);
        }
        self.sample("_sum", labels, values.sum);
        self.sample("_count", labels, values.count as f64);
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(label, value)| format!("{label}=\"{}\"", quoted(value)))
            .collect();
        self.samples += self.name;
        self.samples += suffix;
        if !labels.is_empty() {
            self.samples += &format!("{{{}}}", labels.join(","));
        }
        self.samples += &format!(" {value}\n");
    }
}

/// Quotes a label's value: three characters have to be escaped, and characters that act on a
/// terminal are as well.
fn quoted(value: &str) -> String {
    let mut quoted = String::new();
    for character in value.chars() {
        match character {
            '\\' => quoted += "\\\\",
            '"' => quoted += "\\\"",
            '\n' => quoted += "\\n",
            other if other.is_control() => {
                let _ = write!(quoted, "\\\\u{{{:x}}}", u32::from(other));
            }
            other => quoted.push(other),
        }
    }
    quoted
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# HELP {} {}", self.name, self.help)?;
        writeln!(f, "# TYPE {} {}", self.name, self.kind)?;
        f.write_str(&self.samples)
    }
}

/// Which parts could be read: an unreadable part hides no other.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) family: Family,
}

impl Parts {
    pub(super) fn new() -> Self {
        Self {
            family: Family::gauge(
                "stasis_read_success",
                "1 for each part of these metrics that could be read, 0 for one whose metrics are \
                 missing or too low.",
            ),
        }
    }

    /// Records whether a part could be read; the error goes to standard error.
    pub(super) fn read<T>(&mut self, part: &str, read: Result<T, CommandError>) -> Option<T> {
        let success = f64::from(u8::from(read.is_ok()));
        self.family.add(&[("part", part)], success);
        read.inspect_err(|error| show_note(&chain(error))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted_and_empty_ones_left_out() {
        let mut family = Family::gauge("stasis_x", "What it is.");
        family.add(&[("a", "1\\\"\n\u{1b}é"), ("pod", "")], 1.5);
        family.add(&[("pod", "")], (8_u64 << 30) as f64);
        let expected = "# HELP stasis_x What it is.\n# TYPE stasis_x gauge\n\
                        stasis_x{a=\"1\\\\\\\"\\n\\\\u{1b}é\"} 1.5\nstasis_x 8589934592\n";
        assert_eq!(family.to_string(), expected);
    }

    #[test]
    fn buckets_hold_those_below_them_too() {
        let (bounds, mut values) = ([0.5, 2.0], Distribution::default());
        for value in [0.5, 1.0, 4.0] {
            values.observe(&bounds, value);
        }
        let mut family = Family::histogram("stasis_h", "How.");
        family.add_histogram(&[("a", "b")], &bounds, &values);
        let expected = "# HELP stasis_h How.\n# TYPE stasis_h histogram\n\
                        stasis_h_bucket{a=\"b\",le=\"0.5\"} 1\n\
                        stasis_h_bucket{a=\"b\",le=\"2\"} 2\n\
                        stasis_h_bucket{a=\"b\",le=\"+Inf\"} 3\n\
                        stasis_h_sum{a=\"b\"} 5.5\nstasis_h_count{a=\"b\"} 3\n";
        assert_eq!(family.to_string(), expected);
    }
}
