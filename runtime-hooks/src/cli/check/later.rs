//! What a checkpoint will know, and can only be guessed before.

use super::Report;
use crate::preflight::blocker::Finding;
use crate::preflight::sharing::{Sharing, known_later};

impl Report {
    /// What is only guessed here, and known to a checkpoint, is no blocker.
    pub(super) fn leave_to_the_lock(&mut self, sharing: Sharing, found: &mut Vec<Finding>) {
        if sharing == Sharing::AtTheLock {
            let later = known_later(found).into_iter();
            let told = "whether that is in the way is known once it is locked";
            self.notes
                .extend(later.map(|finding| format!("{finding}: {told}")));
        }
    }
}
