//! Facts about containers in the log of operations: their last images, and the times of their
//! checkpoints and restores.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use stasis_engine::operation::verb::Verb;

use crate::answer::amount::{since, size, took};
use crate::log::line::{Line, read};

/// The operations on a container from which the next one is predicted.
const MOST: usize = 5;

/// The last checkpoints and restores of each container that succeeded, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Past(BTreeMap<(String, String), Vec<Line>>);

/// The last image of a container.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LastImage {
    /// When its checkpoint began, RFC 3339.
    pub(crate) created: String,
    /// How long ago that is.
    pub(crate) age_seconds: Option<u64>,
    /// The path it was written to; its engine may have moved it since.
    pub(crate) path: Option<PathBuf>,
}

/// The expected time and bytes of the next operation: the median of the last on the container.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Predicted {
    pub(crate) seconds: f64,
    /// Bytes of GPU and bulk memory that it moves.
    pub(crate) bytes: Option<u64>,
    /// The number of operations it is based on.
    pub(crate) from: usize,
}

impl Predicted {
    /// Formats it for people.
    pub(crate) fn text(&self) -> String {
        let bytes = self.bytes.map(|bytes| format!(", {}", size(bytes)));
        took(self.seconds) + &bytes.unwrap_or_default()
    }

    /// Formats it with its basis.
    pub(crate) fn text_with_basis(&self) -> String {
        let basis = match self.from {
            1 => "last run".to_owned(),
            from => format!("median of the last {from}"),
        };
        format!("{} ({basis})", self.text())
    }
}

impl Past {
    pub(crate) fn read(log_dir: &Path) -> io::Result<Self> {
        let mut past = Self::default();
        read(log_dir, |line| past.add(line))?;
        Ok(past)
    }

    fn add(&mut self, line: Line) {
        if line.has_failed() {
            return;
        }
        let key = (line.operation.clone(), line.container.clone());
        let of_it = self.0.entry(key).or_default();
        of_it.push(line);
        let too_many = of_it.len().saturating_sub(MOST);
        of_it.drain(..too_many);
    }

    fn of(&self, verb: Verb, container: &str) -> Option<&[Line]> {
        let lines = self.0.get(&(verb.to_string(), container.to_owned()));
        lines.map(Vec::as_slice)
    }

    pub(crate) fn last_image(&self, container: &str, now: SystemTime) -> Option<LastImage> {
        let line = self.of(Verb::Checkpoint, container)?.last()?;
        Some(LastImage {
            created: line.time.clone(),
            age_seconds: since(&line.time, now).map(|age| age.as_secs()),
            path: line.image_path.clone(),
        })
    }

    /// Predicts the next operation of this kind.
    pub(crate) fn predicted(&self, next: Verb, container: &str) -> Option<Predicted> {
        let lines = self.of(next, container)?;
        let mut seconds: Vec<f64> = lines.iter().map(Line::seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let mut bytes: Vec<u64> = lines.iter().filter_map(Line::bytes).collect();
        bytes.sort_unstable();
        Some(Predicted {
            seconds: *seconds.get(seconds.len() / 2)?,
            bytes: bytes.get(bytes.len() / 2).copied(),
            from: lines.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_host::time::parsed;

    fn line(operation: &str, container: &str, seconds: u32, error: Option<&str>) -> Line {
        serde_json::from_value(serde_json::json!({
            "time": format!("2026-11-25T07:00:{seconds:02}Z"),
            "operation": operation,
            "container": container,
            "image_path": format!("/images/{seconds}"),
            "error": error,
            "phases": [{"name": "dump", "seconds": seconds, "bytes": seconds << 20}],
        }))
        .unwrap()
    }

    #[test]
    fn the_median_of_the_last_checkpoints_that_succeeded_is_expected() {
        let mut past = Past::default();
        for seconds in [50, 1, 9, 2, 3, 4] {
            past.add(line("checkpoint", "job", seconds, None));
        }
        past.add(line("checkpoint", "job", 40, Some("refused")));
        past.add(line("restore", "job", 41, None));
        past.add(line("checkpoint", "other", 42, None));
        let predicted = past.predicted(Verb::Checkpoint, "job").unwrap();
        assert_eq!((predicted.from, predicted.bytes), (5, Some(3 << 20)));
        assert!((predicted.seconds - 3.0).abs() < 1e-9);
        assert_eq!(
            predicted.text_with_basis(),
            "3.0 s, 3.0 MiB (median of the last 5)"
        );
        let image = past.last_image("job", parsed("2026-11-25T07:01:04Z").unwrap());
        let image = image.unwrap();
        assert_eq!(image.path, Some("/images/4".into()));
        assert_eq!(image.age_seconds, Some(60));
        let restore = past.predicted(Verb::Restore, "job").unwrap();
        assert_eq!(restore.text_with_basis(), "41.0 s, 41.0 MiB (last run)");
        assert_eq!((restore.from, restore.bytes), (1, Some(41 << 20)));
        assert_eq!(past.predicted(Verb::Restore, "other"), None);
        assert_eq!(past.predicted(Verb::Checkpoint, "nobody"), None);
    }
}
