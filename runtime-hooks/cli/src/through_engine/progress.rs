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
        let mut head = format!("{}: ", self.container);
        if self.is_taken_back {
            head += "undoing, ";
        }
        head += &match under_way {
            Some(under_way) => name(&under_way.phase),
            None => "waiting for its engine".to_owned(),
        };
        let mut parts = Vec::new();
        let mut left_in_phase = None;
        if let Some(under_way) = under_way {
            head += &share(under_way).map(bar).unwrap_or_default();
            let rate = self.rate(under_way, now);
            parts.extend(moved(under_way));
            parts.extend(rate.map(|rate| format!("{}/s", size(rate))));
            left_in_phase = rate.and_then(|rate| left(under_way, rate));
        }
        let elapsed = now.duration_since(self.began);
        let in_all = self.predicted.and_then(|all| all.checked_sub(elapsed));
        let in_all = in_all.filter(|_| under_way.is_some() && !self.is_taken_back);
        parts.extend(match (in_all, left_in_phase) {
            (Some(left), _) => Some(format!("about {} left", age(left))),
            (None, Some(left)) => Some(format!("{} left in this phase", age(left))),
            (None, None) => None,
        });
        parts.push(format!("{} elapsed", age(elapsed)));
        format!("{head}, {}", parts.join(", "))
    }

    /// Returns the speed since the phase was first seen, in bytes a second.
    fn rate(&mut self, under_way: &UnderWay, now: Instant) -> Option<u64> {
        let done = under_way.bytes_done.unwrap_or_default();
        if !matches!(&self.phase, Some(phase) if phase.name == under_way.phase) {
            self.phase = Some(Phase {
                name: under_way.phase.clone(),
                since: now,
                bytes: done,
            });
        }
        let phase = self.phase.as_ref()?;
        let milliseconds = now.duration_since(phase.since).as_millis();
        let moved = u128::from(done.saturating_sub(phase.bytes)) * 1000;
        let rate = moved.checked_div(milliseconds)?;
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }
}

/// Formats the bytes moved in the phase.
fn moved(under_way: &UnderWay) -> Option<String> {
    let done = size(under_way.bytes_done?);
    let total = under_way
        .bytes_total
        .map(|total| format!(" of {}", size(total)));
    Some(done + &total.unwrap_or_default())
}

/// Returns the time left in the phase at this speed.
fn left(under_way: &UnderWay, rate: u64) -> Option<Duration> {
    let left = under_way.bytes_total?.saturating_sub(under_way.bytes_done?);
    left.checked_div(rate).map(Duration::from_secs)
}

/// Returns the share of the phase's bytes that is moved, in percent.
pub(crate) fn share(under_way: &UnderWay) -> Option<u64> {
    let (done, total) = (under_way.bytes_done?, under_way.bytes_total?);
    let share = done.saturating_mul(100).checked_div(total)?;
    Some(share.min(100))
}

/// Draws a share behind its number, which a narrow terminal shows first.
fn bar(percent: u64) -> String {
    const COLUMNS: usize = 20;
    let filled = usize::try_from(percent).unwrap_or_default() * COLUMNS / 100;
    let (filled, empty) = (
        "#".repeat(filled),
        "-".repeat(COLUMNS - filled.min(COLUMNS)),
    );
    format!(" {percent} % [{filled}{empty}]")
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
        assert_eq!(
            line.text(None, at(0)),
            "job: waiting for its engine, 0 s elapsed"
        );
        let lock = under_way("lock", None);
        assert_eq!(line.text(Some(&lock), at(1)), "job: lock, 1 s elapsed");
        let begun = under_way("dump", Some((1, 9)));
        let text = line.text(Some(&begun), at(2));
        assert_eq!(
            text,
            "job: dump 11 % [##------------------], 1.0 GiB of 9.0 GiB, 2 s elapsed"
        );
        let later = under_way("dump", Some((5, 9)));
        let text = line.text(Some(&later), at(4));
        assert_eq!(
            text,
            "job: dump 55 % [###########---------], 5.0 GiB of 9.0 GiB, 2.0 GiB/s, \
             2 s left in this phase, 4 s elapsed"
        );
        line.is_taken_back();
        let text = line.text(Some(&lock), at(5));
        assert_eq!(text, "job: undoing, lock, 5 s elapsed");
    }

    #[test]
    fn what_the_last_ones_took_foretells_the_end_until_it_has_passed() {
        let mut line = ProgressLine::new("job\u{1b}[2J", Shown::Never, Some(30.0));
        let start = line.began;
        let lock = under_way("lock", None);
        let text = line.text(Some(&lock), start + Duration::from_secs(10));
        assert_eq!(text, "job\\u{1b}[2J: lock, about 20 s left, 10 s elapsed");
        let text = line.text(Some(&lock), start + Duration::from_secs(40));
        assert!(text.ends_with(": lock, 40 s elapsed"), "{text}");
    }
}
