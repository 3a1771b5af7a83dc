//! An image that takes its place together with those of a group.

use super::{ImageDirectoryError, NewImage};

/// Whether an image does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InGroup {
    No,
    Yes,
}

impl NewImage {
    /// Lets an image on disk replace an earlier one, once its group is complete.
    ///
    /// # Errors
    /// [`ImageDirectoryError`]; the next restore from the directory goes on.
    pub(crate) fn take_its_place(&self) -> Result<(), ImageDirectoryError> {
        self.replace_earlier()
    }

    /// Whether it waits for the images of others.
    pub(crate) fn is_in_group(&self) -> bool {
        self.in_group == InGroup::Yes
    }
}
