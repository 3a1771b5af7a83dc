//! How far a push is, in one line of a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::answer::name;

const LINE: &str =
    "{total_bytes} gathered, {bytes} there, {binary_bytes_per_sec}, {elapsed}: {wide_msg}";

/// The line, on standard error if that is a terminal. Its length is the bulk memory that was not
/// there before, as it is gathered; its position, what of that is in blobs that are there.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(reference: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(LINE) {
            bar.set_style(style);
        }
        bar.set_message(name(&reference));
        Self(bar)
    }

    /// So many bytes more have been gathered.
    pub(super) fn gathered(&self, bytes: usize) {
        self.0.inc_length(bytes as u64);
    }

    /// A blob of so many bytes is there.
    pub(super) fn sent(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
