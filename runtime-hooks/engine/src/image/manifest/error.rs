//! Errors of reading and writing a manifest.

use std::io;
use std::path::PathBuf;

use super::VERSION;

/// An error of reading or writing a manifest.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ManifestError {
    /// The file or its directory cannot be accessed; [`io::ErrorKind::InvalidData`] if it is no
    /// regular file or too large.
    #[error("cannot {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{path} version {found} was written by {}", other(*found))]
    Version { path: PathBuf, found: u32 },
    /// A restore would refuse this manifest.
    #[error("cannot write {path}: {what}")]
    Unreadable { path: PathBuf, what: String },
    #[error("{path} is damaged: {what}")]
    Malformed { path: PathBuf, what: String },
}

/// Tells which stasis wrote another version, and how to go on.
fn other(found: u32) -> String {
    let (age, advice) = match found < VERSION {
        true => ("an earlier", "make a new checkpoint"),
        false => ("a later", "restore with that one"),
    };
    format!("{age} stasis; this one reads {VERSION}: {advice}")
}
