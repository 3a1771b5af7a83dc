//! Blockers that a checkpoint decides at the lock, and a check can only guess.

use stasis_engine::preflight::blocker::Finding;
use stasis_engine::preflight::sharing::{Sharing, known_later};

use super::CheckReport;

impl CheckReport {
    /// Turns blockers that are only guessed before the lock into notes.
    pub(super) fn leave_to_the_lock(&mut self, sharing: Sharing, found: &mut Vec<Finding>) {
        if sharing == Sharing::AtTheLock {
            let later = known_later(found).into_iter();
            let told = "a checkpoint finds out at the lock whether this is a blocker";
            self.notes
                .extend(later.map(|finding| format!("{finding}: {told}")));
        }
    }
}
