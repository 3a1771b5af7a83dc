//! CRIU's own files, as far as they describe the needs of a new container: mounts, and the files
//! that processes have open or mapped. No restore decides anything by them.
//!
//! An image is untrusted: each file has a limit, all of them together have one, and no more is read
//! of an entry than what is needed.

mod expected;
mod files;
mod mounts;
mod open_files;

use std::io;
use std::path::PathBuf;

pub use expected::{Expected, ExpectedFile};
pub use files::Files;

/// Why CRIU's files cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ContentsError {
    #[error("cannot read {path}")]
    Io { path: PathBuf, source: io::Error },
    /// A file of the image is not what CRIU 4 writes.
    #[error("cannot make sense of {path}: {what}")]
    Malformed { path: PathBuf, what: String },
    #[error("{path} has more {what} than an image of a container has, at most {most}")]
    TooMuch {
        path: PathBuf,
        what: &'static str,
        most: u64,
    },
}

/// The fuzz target `criu_image`: the input is what follows the magic numbers of each file.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    open_files::fuzz(bytes);
    mounts::fuzz(bytes);
    expected::fuzz(bytes);
}

#[cfg(test)]
mod tests;
