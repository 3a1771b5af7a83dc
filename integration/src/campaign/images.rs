//! Where the checkpoints of a container write their images.

/// Where its checkpoints write their images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// Each into a directory of its own; the number of them up to now.
    Apart(u32),
    /// All into one directory, where each takes the place of the one before.
    Together,
}

pub(super) fn image_name(number: u32) -> String {
    format!("image{number}")
}
