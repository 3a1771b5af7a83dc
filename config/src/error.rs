//! Errors in the settings.

use std::io;
use std::path::{Path, PathBuf};

use crate::exposure::Exposed;

/// The settings cannot be used. stasis has done nothing yet when it returns this error.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The file could have been written by somebody other than root.
    #[error("the settings {path} are not to be trusted: {what}")]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// Not TOML, a key that does not exist, or a value of the wrong type.
    #[error("{path}:{line}: {what}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A key of an earlier version.
    #[error("{path}: {key} is not a setting any more: {instead}")]
    Removed {
        /// The file.
        path: PathBuf,
        /// The key, with its table.
        key: &'static str,
        /// What is to be done instead.
        instead: &'static str,
    },
    /// A value that makes no sense.
    #[error("{path}: {key} {what}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, with its table.
        key: &'static str,
        /// What it must be.
        what: &'static str,
    },
    /// The low-level runtime is not there.
    #[error(
        "no low-level runtime: {path} {what}; name runc or crun in the settings (runtime.path)"
    )]
    Runtime {
        /// What the settings name.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Anybody could have root run something else.
    #[error("the low-level runtime {path} is not run: {exposed}; take that right away (chmod o-w)")]
    RuntimeExposed {
        /// The low-level runtime.
        path: PathBuf,
        /// What everybody may change.
        exposed: Exposed,
    },
}

impl SettingsError {
    pub(crate) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start).min(text.len());
        let line = text.as_bytes()[..offset]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        // toml explains an unknown key on several lines; the first has the key.
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        Self::Syntax {
            path: path.to_owned(),
            line,
            what,
        }
    }
}
