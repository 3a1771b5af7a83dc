//! Errors in the settings.

use std::io;
use std::path::{Path, PathBuf};

use crate::exposure::Exposed;

/// The settings cannot be used. stasis has done nothing yet when it returns this error.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SettingsError {
    #[error("cannot read the settings {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("the settings {path} are not to be trusted: {what}")]
    Untrusted { path: PathBuf, what: String },
    #[error("{path}:{line}: {what}")]
    Syntax {
        path: PathBuf,
        line: usize,
        what: String,
    },
    #[error("{path}: {key} {what}")]
    Value {
        path: PathBuf,
        key: &'static str,
        what: &'static str,
    },
    #[error(
        "no low-level runtime: {path} {what}; name runc or crun in the settings (runtime.path)"
    )]
    Runtime { path: PathBuf, what: &'static str },
    #[error("the low-level runtime {path} is not run: {exposed}; take that right away (chmod o-w)")]
    RuntimeExposed { path: PathBuf, exposed: Exposed },
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
