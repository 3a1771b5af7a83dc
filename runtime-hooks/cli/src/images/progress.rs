//! A push's progress, in one line of a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stasis_transfer::Progress;

use crate::answer::name;

const LINE: &str =
    "{bytes} sent of {total_bytes} read, {binary_bytes_per_sec}, {elapsed} elapsed: {wide_msg}";

/// The line, on standard error if that is a terminal. Its length is the bulk memory that was
/// missing before, as it is gathered; its position, the part of that in stored blobs.
#[derive(Debug)]
pub(super) struct ProgressLine(ProgressBar);

impl ProgressLine {
    pub(super) fn new(reference: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(LINE) {
            bar.set_style(style);
        }
        bar.set_message(name(&reference));
        Self(bar)
    }
}

impl Progress for ProgressLine {
    fn gathered(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }

    fn sent(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
