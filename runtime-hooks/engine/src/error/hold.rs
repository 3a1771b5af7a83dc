//! Why a restored container cannot wait for its start, or be started.

use std::io;
use std::path::PathBuf;

use crate::error::io_kind::of_io;
use crate::error::kind::Kind;

/// Why a restored container cannot wait for its start, or be started.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum HoldError {
    /// crun puts processes into their cgroup after CRIU has resumed them.
    #[error("{0} is no low-level runtime that can hold what it restores; runc is")]
    LowLevel(String),
    #[error("the container's cgroup is not known before it is made, or is in use")]
    Cgroup,
    #[error("the CRIU plugin that holds processes cannot be used: {0}")]
    NoPlugin(String),
    /// CRIU has let processes run.
    #[error("the restored processes are not held in the container's cgroup")]
    NotHeld,
    #[error("the image has no mount at {0}, and the new container has")]
    Mount(PathBuf),
    #[error("cannot {action} of the restored container")]
    Io {
        action: &'static str,
        source: io::Error,
    },
    #[error("the image {0} is not that from which the container was created")]
    Exchanged(PathBuf),
}

impl HoldError {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::LowLevel(_) | Self::Cgroup => Kind::Unsupported,
            Self::NoPlugin(_) => Kind::NoPlugin,
            Self::NotHeld => Kind::Freezer,
            Self::Mount(_) => Kind::Bundle,
            Self::Io { source, .. } => of_io(source, Kind::Io),
            Self::Exchanged(_) => Kind::ImageDamaged,
        }
    }
}
