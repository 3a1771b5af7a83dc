//! Errors of `stasis checkpoint --group` before it has begun.

use std::io;
use std::path::PathBuf;

use crate::error::io_kind::of_io;
use crate::error::kind::Kind;

/// Why a group is not checkpointed.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// `--group` is missing.
    #[error(
        "{0} containers are named; checkpoint them together with --group --into DIR, or one by one"
    )]
    NotAsked(usize),
    /// Two names are one container's.
    #[error("{0} and {1} name the same container; name each once")]
    Twice(String, String),
    /// No pod of this name runs here.
    #[error("no pod {0} has a container here; say NAMESPACE/POD, as `stasis ps` shows them")]
    NoPod(String),
    /// Pods of several namespaces have the name.
    #[error("there are several pods {0}: say NAMESPACE/{0}")]
    SeveralPods(String),
    /// Images of an earlier group are there.
    #[error(
        "{0} holds the images of a group already; name another directory, and remove that one when \
         nobody needs it"
    )]
    Holds(PathBuf),
    /// Another group is being checkpointed into it.
    #[error("another group is being checkpointed into {0}; name another directory")]
    Busy(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// `stasis-runtime` cannot be used.
    #[error("{0}")]
    NoRuntime(String),
}

impl GroupError {
    /// Why nothing was done.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotAsked(_) | Self::Twice(..) | Self::NoPod(_) | Self::SeveralPods(_) => {
                Kind::NoContainer
            }
            Self::Holds(_) => Kind::ImageDirectory,
            Self::Busy(_) => Kind::Busy,
            Self::Directory { source, .. } => of_io(source, Kind::ImageDirectory),
            Self::NoRuntime(_) => Kind::LowLevelRuntime,
        }
    }
}
