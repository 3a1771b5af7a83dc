//! How far a push is, in one line of a terminal.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::answer::amount::{age, size};
use crate::cli::answer::name;

/// It is written again after so many bytes.
const STEP: u64 = 16 << 20;

/// The line, on standard error if that is a terminal.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    reference: String,
    began: Instant,
    /// Bulk memory that was not there before, as it is gathered.
    gathered: AtomicU64,
    /// Of that, what is in blobs that are there.
    sent: AtomicU64,
}

impl Progress {
    pub(super) fn new(reference: &str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            reference: name(&reference),
            began: Instant::now(),
            gathered: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// So many bytes more have been gathered.
    pub(super) fn gathered(&self, bytes: usize) {
        let bytes = bytes as u64;
        let before = self.gathered.fetch_add(bytes, Ordering::Relaxed);
        // They come by the page.
        if before / STEP != (before + bytes) / STEP {
            self.show();
        }
    }

    /// A blob of so many bytes is there.
    pub(super) fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        self.show();
    }

    fn show(&self) {
        if !self.bar.is_hidden() {
            let [gathered, sent] =
                [&self.gathered, &self.sent].map(|bytes| bytes.load(Ordering::Relaxed));
            let text = text(gathered, sent, self.began.elapsed());
            self.bar.set_message(format!("{}: {text}", self.reference));
            self.bar.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn text(gathered: u64, sent: u64, elapsed: Duration) -> String {
    let mut parts = vec![
        format!("{} gathered", size(gathered)),
        format!("{} there", size(sent)),
    ];
    let rate = sent as f64 / elapsed.as_secs_f64();
    if rate.is_finite() && rate > 0.0 {
        parts.push(format!("{:.1} GiB/s", rate / GIB));
    }
    parts.push(age(elapsed));
    parts.join(", ")
}

const GIB: f64 = (1_u64 << 30) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_much_is_there_and_how_fast() {
        let told = text(3 << 30, 2 << 30, Duration::from_secs(4));
        assert_eq!(told, "3.0 GiB gathered, 2.0 GiB there, 0.5 GiB/s, 4 s");
        let told = text(0, 0, Duration::ZERO);
        assert_eq!(told, "0 B gathered, 0 B there, 0 s");
    }
}
