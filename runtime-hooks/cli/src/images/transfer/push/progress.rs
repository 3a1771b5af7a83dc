//! A push's progress, in one line of a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::answer::name;

const LINE: &str =
    "{bytes} sent of {total_bytes} read, {binary_bytes_per_sec}, {elapsed} elapsed: {wide_msg}";

/// The line, on standard error if that is a terminal. Its length is the bulk memory that was
/// missing before, as it is gathered; its position, the part of that in stored blobs.
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

    /// Counts bytes that have been gathered.
    pub(super) fn gathered(&self, bytes: usize) {
        self.0.inc_length(bytes as u64);
    }

    /// Counts a stored blob of so many bytes.
    pub(super) fn sent(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
