//! A deadline for work that may hang and cannot be interrupted.
//!
//! A thread cannot be cancelled. So a thread of its own does the work, and is left behind with it
//! if it is overdue: our process does one operation, and ends soon.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::Builder;
use std::time::Duration;

/// For reading the processes of a container in `/proc`: the kernel shows no memory map of a process
/// while it changes it, which may wait for a disk or a network file system.
pub const PROC: Duration = Duration::from_secs(30);

/// Whether work was ever left behind.
static LEFT_BEHIND: AtomicBool = AtomicBool::new(false);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Overdue {
    /// The work goes on.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Hangs(Duration),
    /// Starting a thread failed.
    #[error("no thread could be started")]
    NoThread(#[source] io::Error),
}

/// Does `work` on a thread of its own, and waits no longer than `limit` for it.
///
/// # Errors
/// [`Overdue`]; the work may still go on then.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Overdue> {
    let (result, done) = mpsc::channel();
    // The receiver is gone if the result comes too late.
    let thread = Builder::new().spawn(move || drop(result.send(work())));
    let thread = thread.map_err(Overdue::NoThread)?;
    match done.recv_timeout(limit) {
        Ok(result) => Ok(result),
        Err(RecvTimeoutError::Timeout) => {
            left_behind();
            Err(Overdue::Hangs(limit))
        }
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(Overdue::Hangs(limit)),
        },
    }
}

impl From<Overdue> for io::Error {
    fn from(overdue: Overdue) -> Self {
        Self::new(io::ErrorKind::TimedOut, overdue)
    }
}

/// Records that a thread is left behind in a library.
pub fn left_behind() {
    LEFT_BEHIND.store(true, Ordering::Relaxed);
}

/// Whether a thread was ever left behind. Then this process must not end the ordinary way: a
/// library's exit handlers may wait for it.
pub fn is_left_behind() -> bool {
    LEFT_BEHIND.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_hangs_is_left_behind() {
        let (end, ended) = mpsc::channel::<()>();
        let limit = Duration::from_millis(1);
        let hangs = within(limit, move || ended.recv());
        assert!(matches!(hangs, Err(Overdue::Hangs(_))));
        drop(end);
        assert_eq!(within(Duration::from_secs(60), || 7).unwrap(), 7);
    }

    #[test]
    fn a_panic_is_passed_on() {
        let work = || within(Duration::from_secs(60), || assert_eq!(1, 2, "wrong"));
        assert!(std::panic::catch_unwind(work).is_err());
    }
}
