//! The identity that a registry sees.

use std::path::{Path, PathBuf};

use clap::Args;

/// Where the user's credentials are.
#[derive(Debug, Args)]
pub(super) struct Login {
    /// Read credentials from this file, as `podman login --authfile` and `docker login` write it.
    /// Default: root's own.
    #[arg(long, value_name = "FILE")]
    authfile: Option<PathBuf>,
}

impl Login {
    /// Returns the file that was named.
    pub(super) fn file(&self) -> Option<&Path> {
        self.authfile.as_deref()
    }
}
