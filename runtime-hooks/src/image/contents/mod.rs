//! What an image holds, in CRIU's own words, for people who want to know: its processes with what
//! they had open, its mounts, and what CRIU measured. No restore decides anything by it.
//!
//! An image is untrusted: each file has a limit, all of them together have one, no more is read of
//! an entry than what is shown, and what is shown has a limit, too.

mod command_line;
mod expected;
mod files;
mod mounts;
mod open_files;
mod processes;
mod sockets;
mod statistics;

use std::io;
use std::path::PathBuf;

pub(crate) use expected::{Expected, ExpectedFile};
pub(crate) use files::Files;
pub(crate) use mounts::Mount;
pub(crate) use processes::Process;
pub(crate) use statistics::Statistics;

use open_files::OpenFiles;

/// Why the contents of an image cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// A file of the image cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A file of the image is not what CRIU 4 writes.
    #[error("cannot make sense of {path}: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It has more than an image of a container has.
    #[error("{path} has more {what} than an image of a container has, at most {most}")]
    TooMuch {
        /// The image.
        path: PathBuf,
        /// Of what.
        what: &'static str,
        /// How much is read.
        most: u64,
    },
}

/// What is in an image.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Parents first.
    pub(crate) processes: Vec<Process>,
    pub(crate) mounts: Vec<Mount>,
    /// `None`: CRIU wrote them elsewhere, into its work directory.
    pub(crate) statistics: Option<Statistics>,
}

impl Contents {
    /// Reads what CRIU wrote.
    ///
    /// # Errors
    /// [`ContentsError`].
    pub(crate) fn read(files: &Files) -> Result<Self, ContentsError> {
        let mut open = OpenFiles::read(files)?;
        Ok(Self {
            processes: processes::read(files, &mut open)?,
            mounts: mounts::read(files)?,
            statistics: statistics::read(files)?,
        })
    }
}

/// The fuzz target `criu_image`: the input is what follows the magic numbers of each file.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    processes::fuzz(bytes);
    open_files::fuzz(bytes);
    mounts::fuzz(bytes);
    statistics::fuzz(bytes);
    expected::fuzz(bytes);
}

#[cfg(test)]
mod tests;
