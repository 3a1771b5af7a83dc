//! How fast the disks of images and GPU contents are, by what past operations have shown.

use std::collections::VecDeque;
use std::time::Duration;

use stasis_config::Settings;

use super::warning;
use crate::cli::answer::amount::size;
use crate::cli::doctor::Finding;
use crate::cli::log::line::{Line, read};

/// That of a good disk of the cheap kind (SATA): GPU contents are tens of GiB.
const SLOW: u64 = 512 << 20;
/// What is less may never have left the page cache.
const TELLING: u64 = 256 << 20;
/// The last operations count, since a disk may have been replaced.
const MOST: usize = 5;

pub(super) fn finding(settings: &Settings) -> Option<Finding> {
    let mut rates = VecDeque::new();
    // A log that cannot be read says nothing of a disk.
    read(&settings.paths.log_dir, |line| {
        rates.extend(rate_of(&line));
        if rates.len() > MOST {
            rates.pop_front();
        }
    })
    .ok()?;
    let mut rates: Vec<u64> = rates.into();
    rates.sort_unstable();
    let rate = *rates.get(rates.len() / 2)?;
    (rate < SLOW).then(|| {
        warning(
            "slow-disk",
            format!(
                "the last checkpoints went to disk with {} a second: 64 GiB take {} s",
                size(rate),
                (64 << 30) / rate.max(1)
            ),
            "a faster disk, or a tmpfs for GPU contents (gpu_contents.directory)",
        )
    })
}

/// Bytes a second of the time for which a checkpoint has waited for the disk.
fn rate_of(line: &Line) -> Option<u64> {
    if line.operation != "checkpoint" {
        return None;
    }
    let bytes = line.bulk_memory.as_ref()?.stored_bytes;
    let phase = line.phases.iter().find(|phase| phase.name == "sync")?;
    let took = Duration::try_from_secs_f64(phase.seconds).ok()?;
    let milliseconds = u64::try_from(took.as_millis()).ok()?;
    let is_told = bytes >= TELLING && !line.has_failed();
    let rate = bytes.saturating_mul(1000).checked_div(milliseconds);
    rate.filter(|_| is_told)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stasis_memory_store::Report;

    use super::*;

    fn line(operation: &str, phase: &str, seconds: f64, bytes: u64) -> String {
        let phases = serde_json::json!([{"name": phase, "seconds": seconds, "bytes": null}]);
        let report = Report {
            stored_bytes: bytes,
            ..Report::default()
        };
        let line = serde_json::json!({
            "time": "2026-11-25T07:00:00Z", "operation": operation, "container": "job",
            "phases": phases, "bulk_memory": report,
        });
        format!("{line}\n")
    }

    #[test]
    fn the_median_of_the_last_checkpoints_counts() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.paths.log_dir = directory.path().to_owned();
        let found = |lines: &[String]| {
            fs::write(directory.path().join("operations.log"), lines.concat()).unwrap();
            finding(&settings).map(|finding| finding.evidence)
        };
        let slow = line("checkpoint", "sync", 10.0, 1 << 30);
        let fast = line("checkpoint", "sync", 1.0, 1 << 30);
        let small = line("checkpoint", "sync", 10.0, 1 << 20);
        let restore = line("restore", "sync", 10.0, 1 << 30);
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[small, restore]), None);
        let evidence = found(&[slow.clone(), fast.clone(), slow.clone()]).unwrap();
        assert!(
            evidence.contains("102 MiB a second: 64 GiB take 640 s"),
            "{evidence}"
        );
        let then_fast = [vec![slow; 3], vec![fast; 5]].concat();
        assert_eq!(found(&then_fast), None);
    }
}
