//! Errors of `stasis checkpoint --group` and `stasis restore --group` before they have begun.

use std::io;
use std::path::PathBuf;

use stasis_engine::error::io_kind::of_io;
use stasis_engine::error::kind::Kind;

/// Why a group is not checkpointed, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// `--group` is missing.
    #[error("name one container, or use --group --into DIR for all {0} together")]
    NotAsked(usize),
    /// Two names are one container's.
    #[error("{0} and {1} name the same container; name each once")]
    Twice(String, String),
    /// No pod of this name runs here.
    #[error("no container of a pod {0} runs here; name it NAMESPACE/POD, as in `stasis ps`")]
    NoPod(String),
    /// Pods of several namespaces have the name.
    #[error("several namespaces have a pod {0}: name it NAMESPACE/{0}")]
    SeveralPods(String),
    /// The directory has the images of an earlier group.
    #[error("{0} already holds the images of a group; name another directory")]
    Holds(PathBuf),
    /// Another group is being checkpointed into it.
    #[error("another checkpoint into {0} is running; name another directory")]
    Busy(PathBuf),
    /// The directory cannot be used.
    #[error("cannot use {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// There is no complete group.
    #[error("{0} holds no complete group: it has no group.json")]
    NoGroup(PathBuf),
    /// The group's file is not as stasis writes it.
    #[error("{0}/group.json is damaged; restore from a whole copy")]
    Malformed(PathBuf),
    /// No bundle is named for a container.
    #[error(
        "no bundle is named for {name}; add --bundle {name}=DIRECTORY{}",
        of_engine(.engine.as_deref())
    )]
    NoBundle {
        /// The container.
        name: String,
        /// The engine that had it.
        engine: Option<String>,
    },
    /// A bundle is not "NAME=DIRECTORY".
    #[error("--bundle {0}: write NAME=DIRECTORY, for each container of the group")]
    Bundle(String),
    /// A bundle is named for a container that the group does not have.
    #[error("the group in {1} has no container {0}")]
    NotOfGroup(String, PathBuf),
    /// `stasis-runtime` cannot be used.
    #[error("{0}")]
    NoRuntime(String),
}

impl GroupError {
    /// Returns the kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotAsked(_)
            | Self::Twice(..)
            | Self::NoPod(_)
            | Self::SeveralPods(_)
            | Self::NotOfGroup(..) => Kind::NoContainer,
            Self::Holds(_) | Self::NoGroup(_) => Kind::ImageDirectory,
            Self::Malformed(_) => Kind::ImageDamaged,
            Self::NoBundle { .. } | Self::Bundle(_) => Kind::Bundle,
            Self::Busy(_) => Kind::Busy,
            Self::Directory { source, .. } => of_io(source, Kind::ImageDirectory),
            Self::NoRuntime(_) => Kind::LowLevelRuntime,
        }
    }
}

/// Names the engine that had a container: engines restore containers one by one.
fn of_engine(engine: Option<&str>) -> String {
    let text = |engine| format!(" ({engine} made it, and cannot restore several together)");
    engine.map(text).unwrap_or_default()
}
