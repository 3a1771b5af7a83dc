//! The time limit of the whole self-test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use stasis_linux::ProcessRef;

use super::trial::Failure;

/// Ends the tried process when the time is over: calls that wait for it then return.
#[derive(Debug)]
pub(super) struct Deadline {
    limit: Duration,
    is_over: Arc<AtomicBool>,
    /// Sends nothing: its end is the message.
    _end: Sender<()>,
}

impl Deadline {
    pub(super) fn begin(process: &ProcessRef, limit: Duration) -> Self {
        let (end, ended) = mpsc::channel::<()>();
        let is_over = Arc::new(AtomicBool::new(false));
        let (process, over) = (process.clone(), Arc::clone(&is_over));
        thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                over.store(true, Ordering::Relaxed);
                let _ = process.kill();
            }
        });
        Self {
            limit,
            is_over,
            _end: end,
        }
    }

    /// Returns the failure, or that the time was over.
    pub(super) fn explain(&self, failure: Failure) -> Failure {
        if self.is_over.load(Ordering::Relaxed) {
            return Failure::Overdue(self.limit);
        }
        failure
    }
}
