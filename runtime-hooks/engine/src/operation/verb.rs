//! The names of the operations.

use std::fmt;

/// The operations that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// An OCI create, of a container that is to begin with an image.
    Create,
    /// An OCI start of such a container.
    Start,
    /// An OCI checkpoint.
    Checkpoint,
    /// An OCI restore.
    Restore,
    /// An OCI resume.
    Resume,
    /// A checkpoint in the place of the end that a signal asked for.
    Stop,
    /// The work of a keeper.
    Recover,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
            Self::Resume => "resume",
            Self::Stop => "stop",
            Self::Recover => "recover",
        })
    }
}
