//! Errors of reading and writing a manifest.

use std::io;
use std::path::PathBuf;

use super::VERSION;

/// An error of reading or writing a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file or its directory cannot be accessed; [`io::ErrorKind::InvalidData`] if it is no
    /// regular file or too large.
    #[error("cannot {action} {path}")]
    Io {
        /// "read" or "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Written by another version of stasis.
    #[error("{path} version {found} was written by {}", other(*found))]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A restore would refuse this manifest.
    #[error("cannot write {path}: {what}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// Truncated or not a manifest.
    #[error("{path} is damaged: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
}

/// Tells which stasis wrote another version, and how to go on.
fn other(found: u32) -> String {
    let (age, advice) = match found < VERSION {
        true => ("an earlier", "make a new checkpoint"),
        false => ("a later", "restore with that one"),
    };
    format!("{age} stasis; this one reads {VERSION}: {advice}")
}
