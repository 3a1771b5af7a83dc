//! The points where the tests stop a process that works in a directory: before each call that looks
//! at it or changes it. There they let others go on, kill, have the call fail, or cut the power.

use std::io;
use std::time::Duration;

/// The wait for a lock that its holder needs for a moment only.
#[cfg(not(test))]
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
#[cfg(test)]
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

/// Comes before the next call that only looks.
pub(super) fn step() {
    #[cfg(test)]
    super::tests::model::step();
}

/// Makes the next call that changes something, or returns the error that a test has in its place.
pub(super) fn change<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    step();
    #[cfg(test)]
    return super::tests::change::change(call);
    #[cfg(not(test))]
    call()
}

/// Waits for a moment until a lock may be free.
pub(super) fn pause() {
    #[cfg(test)]
    super::tests::model::pause();
    #[cfg(not(test))]
    std::thread::sleep(Duration::from_millis(10));
}
