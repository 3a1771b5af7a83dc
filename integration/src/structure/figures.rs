//! docs/figures/speed.svg shows what docs/internals/benchmarks.md says, and measured.svg what a
//! node has logged.

use std::fs;

use serde_json::Value;

use super::{refuse, repository};

/// Rows that are drawn, the number of their cells that are, and the caption of these.
const DRAWN: [(&str, usize, &str); 4] = [
    ("| goes on, with its resume |", 2, "stasis"),
    ("| ends |", 2, "stasis"),
    ("| restore |", 2, "stasis"),
    ("| 8 GiB |", 3, "driver and CRIU"),
];
const THEIRS: &str = "\n## By the driver and CRIU\n";

#[test]
fn speed_is_drawn_as_measured() {
    let docs = repository().join("docs");
    let benchmarks = fs::read_to_string(docs.join("internals/benchmarks.md")).unwrap();
    let figure = fs::read_to_string(docs.join("figures/speed.svg")).unwrap();
    let mut missing = Vec::new();
    for (start, cells, caption) in DRAWN {
        let (ours, theirs) = benchmarks.split_once(THEIRS).unwrap();
        let table = if caption == "stasis" { ours } else { theirs };
        let row = table.lines().find(|line| line.starts_with(start));
        let row = row.unwrap_or_else(|| panic!("no row {start}"));
        for cell in row[start.len()..].split('|').take(cells) {
            let median = cell.split(',').next().unwrap_or_default().trim();
            if !figure.contains(&format!(">{median}  {caption}")) {
                missing.push(format!("{start} {median}"));
            }
        }
    }
    refuse("figures of speed.svg that differ (figures.py)", &missing);
}

#[test]
fn phases_are_drawn_as_logged() {
    let figures = repository().join("docs/figures");
    let drawn = fs::read_to_string(figures.join("measured.svg")).unwrap();
    let logged = fs::read_to_string(figures.join("measured.jsonl")).unwrap();
    let mut missing = Vec::new();
    for line in logged.lines() {
        let operation: Value = serde_json::from_str(line).unwrap();
        for phase in operation["phases"].as_array().unwrap() {
            let (name, seconds) = (
                phase["name"].as_str().unwrap(),
                phase["seconds"].as_f64().unwrap(),
            );
            let is_drawn =
                drawn.contains(&format!(">{name}<")) && drawn.contains(&format!(">{seconds:.2}"));
            if seconds >= 0.01 && !is_drawn {
                missing.push(format!("{name} {seconds:.2}"));
            }
        }
    }
    refuse("phases that measured.svg lacks (figures.py)", &missing);
}
