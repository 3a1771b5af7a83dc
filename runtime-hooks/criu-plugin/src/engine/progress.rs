//! Progress of copying, for the engine to show.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Written once per this many bytes.
const STEP: u64 = 256 << 20;

/// Bytes done, of a total.
#[derive(Debug)]
pub(crate) struct Progress {
    file: Option<File>,
    done: AtomicU64,
    total: u64,
}

impl Progress {
    /// A file that cannot be made is no reason to fail.
    pub(crate) fn new(path: Option<&Path>, total: u64) -> Self {
        let file = path.and_then(|path| File::create(path).ok());
        let progress = Self {
            file,
            done: AtomicU64::new(0),
            total,
        };
        progress.tell(0);
        progress
    }

    pub(crate) fn add(&self, bytes: u64) {
        let before = self.done.fetch_add(bytes, Ordering::Relaxed);
        if before / STEP != (before + bytes) / STEP {
            self.tell(before + bytes);
        }
    }

    fn tell(&self, done: u64) {
        if let Some(file) = &self.file {
            // A fixed width, so that a later line always covers an earlier one.
            let line = format!("{done:>20} {:>20}\n", self.total);
            let _ = file.write_at(line.as_bytes(), 0);
        }
    }
}
