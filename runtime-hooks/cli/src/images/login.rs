//! The identity that a registry sees.

use std::path::PathBuf;

use clap::Args;

/// Where the user's credentials are.
#[derive(Debug, Args)]
pub(super) struct Login {
    /// Read credentials from this file, as `podman login --authfile` and `docker login` write it.
    /// Default: root's own.
    #[arg(long, value_name = "FILE")]
    pub(super) authfile: Option<PathBuf>,
}
