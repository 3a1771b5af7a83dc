//! Where the model test stops, or ends, whoever is at work in a directory: before each call that
//! looks at it or changes it.

use std::time::Duration;

/// For a lock that its holder needs for a moment only.
#[cfg(not(test))]
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
#[cfg(test)]
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

/// Before the next call.
pub(super) fn step() {
    #[cfg(test)]
    super::tests::model::step();
}

/// Waits for a moment until a lock may be free.
pub(super) fn pause() {
    #[cfg(test)]
    super::tests::model::pause();
    #[cfg(not(test))]
    std::thread::sleep(Duration::from_millis(10));
}
