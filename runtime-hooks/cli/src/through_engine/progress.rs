//! The progress of an operation, in one line of a terminal.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stasis_engine::operation::progress::UnderWay;

use crate::answer::amount::{age, size};
use crate::answer::{Format, name};

/// Whether it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Shown {
    /// On standard error, if that is a terminal.
    Auto,
    /// Never.
    Never,
}

/// Hides the progress from JSON documents.
pub(super) fn shown(wanted: Shown, format: Format) -> Shown {
    match format {
        Format::Json => Shown::Never,
        Format::Text => wanted,
    }
}

/// The line, cut at the terminal's width: the most important part is in front.
#[derive(Debug)]
pub(super) struct ProgressLine {
    bar: ProgressBar,
    container: String,
    began: Instant,
    /// The expected time of the whole operation.
    predicted: Option<Duration>,
    phase: Option<Phase>,
    is_taken_back: bool,
}

/// The current phase, and its bytes when it was first seen.
#[derive(Debug)]
struct Phase {
    name: String,
    since: Instant,
    bytes: u64,
}

impl ProgressLine {
    pub(super) fn new(container: &str, shown: Shown, predicted: Option<f64>) -> Self {
        let target = match shown {
            Shown::Auto => ProgressDrawTarget::stderr(),
            Shown::Never => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            container: name(&container),
            began: Instant::now(),
            predicted: predicted.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            phase: None,
            is_taken_back: false,
        }
    }

    /// Shows from now on that the operation is being undone.
    pub(super) fn is_taken_back(&mut self) {
        self.is_taken_back = true;
    }

    /// Returns whether the line is visible.
    pub(super) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    pub(super) fn show(&mut self, under_way: Option<&UnderWay>) {
        if self.is_shown() {
            let text = self.text(under_way, Instant::now());
            self.bar.set_message(text);
            self.bar.tick();
        }
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn text(&mut self, under_way: Option<&UnderWay>, now: Instant) -> String {
        let mut parts = Vec::new();
        if self.is_taken_back {
            parts.push("taking it back".to_owned());
        }
        if let Some(under_way) = under_way {
            parts.push(name(&under_way.phase));
            parts.extend(self.moved(under_way, now));
        }
        let elapsed = now.duration_since(self.began);
        if parts.is_empty() {
            parts.push("waiting for its engine".to_owned());
        }
        let left = self.predicted.and_then(|all| all.checked_sub(elapsed));
        match left {
            Some(left) if under_way.is_some() && !self.is_taken_back => {
                parts.push(format!("about {} in all left", age(left)));
            }
            _ => parts.push(age(elapsed)),
        }
        format!("{}: {}", self.container, parts.join(", "))
    }

    /// Formats the bytes moved in the phase, the speed, and the time left at that speed.
    fn moved(&mut self, under_way: &UnderWay, now: Instant) -> Vec<String> {
        let done = under_way.bytes_done.unwrap_or_default();
        if !matches!(&self.phase, Some(phase) if phase.name == under_way.phase) {
            self.phase = Some(Phase {
                name: under_way.phase.clone(),
                since: now,
                bytes: done,
            });
        }
        let mut parts = Vec::new();
        if under_way.bytes_done.is_none() {
            return parts;
        }
        let of_total = under_way.bytes_total;
        let of_total = of_total.map(|total| format!(" of {}", size(total)));
        parts.push(size(done) + &of_total.unwrap_or_default());
        let Some(phase) = &self.phase else {
            return parts;
        };
        let milliseconds = now.duration_since(phase.since).as_millis();
        let moved = u128::from(done.saturating_sub(phase.bytes)) * 1000;
        let rate = moved.checked_div(milliseconds);
        let rate = rate.and_then(|rate| u64::try_from(rate).ok());
        let Some(rate @ 1..) = rate else {
            return parts;
        };
        parts.push(format!("{}/s", size(rate)));
        if let Some(total) = under_way.bytes_total {
            let left = Duration::from_secs(total.saturating_sub(done) / rate);
            parts.push(format!("{} left", age(left)));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under_way(phase: &str, bytes: Option<(u64, u64)>) -> UnderWay {
        UnderWay {
            phase: phase.to_owned(),
            bytes_done: bytes.map(|(done, _)| done << 30),
            bytes_total: bytes.map(|(_, total)| total << 30),
            ..UnderWay::default()
        }
    }

    #[test]
    fn phase_amount_speed_and_time_left_are_told() {
        let mut line = ProgressLine::new("job", Shown::Never, None);
        let start = line.began;
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(line.text(None, at(0)), "job: waiting for its engine, 0 s");
        let lock = under_way("lock", None);
        assert_eq!(line.text(Some(&lock), at(1)), "job: lock, 1 s");
        let begun = under_way("dump", Some((1, 9)));
        let text = line.text(Some(&begun), at(2));
        assert_eq!(text, "job: dump, 1.0 GiB of 9.0 GiB, 2 s");
        let later = under_way("dump", Some((5, 9)));
        let text = line.text(Some(&later), at(4));
        assert_eq!(
            text,
            "job: dump, 5.0 GiB of 9.0 GiB, 2.0 GiB/s, 2 s left, 4 s"
        );
        line.is_taken_back();
        let text = line.text(Some(&lock), at(5));
        assert_eq!(text, "job: taking it back, lock, 5 s");
    }

    #[test]
    fn what_the_last_ones_took_foretells_the_end_until_it_has_passed() {
        let mut line = ProgressLine::new("job\u{1b}[2J", Shown::Never, Some(30.0));
        let start = line.began;
        let lock = under_way("lock", None);
        let text = line.text(Some(&lock), start + Duration::from_secs(10));
        assert_eq!(text, "job\\u{1b}[2J: lock, about 20 s in all left");
        let text = line.text(Some(&lock), start + Duration::from_secs(40));
        assert!(text.ends_with(": lock, 40 s"), "{text}");
    }
}
