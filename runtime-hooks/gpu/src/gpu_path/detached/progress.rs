//! Progress of moving contents, in a file as the CRIU plugin writes it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two writes.
const AGAIN: Duration = Duration::from_millis(100);

/// Does the work, which counts the bytes that are done, and writes the count again and again, with
/// the total.
pub(super) fn with_progress<T>(
    file: Option<&Path>,
    total: &AtomicU64,
    work: impl FnOnce(&AtomicU64) -> T,
) -> T {
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let Some(file) = file else {
        return work(&done);
    };
    thread::scope(|scope| {
        let shows = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let [done, total] = [&done, total].map(|bytes| bytes.load(Ordering::Relaxed));
                // Only for people who wait, so an error is ignored.
                let _ = fs::write(file, format!("{done} {total}\n"));
                thread::park_timeout(AGAIN);
            }
        });
        let result = work(&done);
        is_over.store(true, Ordering::Relaxed);
        shows.thread().unpark();
        result
    })
}
