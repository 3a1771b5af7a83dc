//! Why a container does not begin with an image, and is started as if it had asked for none.

use std::io;
use std::path::PathBuf;

use crate::container::at_stop::repository::NoRepository;
use crate::container::pod::NoNamespace;
use crate::error::io_kind::of_io;
use crate::error::kind::Kind;

/// Why a container does not begin with an image.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NoFirstImage {
    #[error("the settings let no container begin with an image (restore.at_create)")]
    Off,
    #[error(transparent)]
    Namespace(#[from] NoNamespace),
    #[error(
        "an image of the key is being made, of a container that is stopped, and is not complete"
    )]
    BeingMade(#[source] io::Error),
    #[error("there is no complete image in {0}")]
    Missing(PathBuf),
    #[error("the image {0} is not complete: nothing in it says which files it should have")]
    Incomplete(PathBuf),
    #[error(
        "the last {times} containers that began with the image {image} ended within a minute of \
         their start, and nobody had asked for that; once it can be tried again, remove {noted}"
    )]
    EndsSoon {
        image: PathBuf,
        /// When it was made, RFC 3339.
        created: String,
        times: u32,
        noted: PathBuf,
    },
    #[error("the settings let no container begin with an image of a registry (restore.registry)")]
    NoRegistry,
    #[error("the image {given} is not in {allowed}, where this container may name images")]
    OtherRegistry { given: String, allowed: String },
    #[error("the image {reference} cannot be pulled: {why}")]
    Pull {
        reference: String,
        kind: Kind,
        why: String,
    },
    #[error(transparent)]
    Repository(#[from] NoRepository),
    #[error(
        "an image of the key is being made on {host} since {since}, of a container that is stopped \
         ({image}), and is not in the registry yet"
    )]
    Awaited {
        image: String,
        host: String,
        since: String,
    },
    /// crun puts processes into their cgroup after CRIU has resumed them.
    #[error("{0} is no low-level runtime that can hold what it restores; runc is")]
    LowLevel(String),
    #[error("the caller's option --{0} is not known at a restore")]
    Option(&'static str),
    /// `run` would start it at once.
    #[error("the container is not created first and started then")]
    Run,
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
        #[source]
        source: io::Error,
    },
    #[error("the image {0} is not that from which the container was created")]
    Exchanged(PathBuf),
}

impl NoFirstImage {
    /// Why, for scripts.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Off
            | Self::Namespace(_)
            | Self::NoRegistry
            | Self::Repository(_)
            | Self::OtherRegistry { .. } => Kind::ImageNotAllowed,
            Self::Pull { kind, .. } => *kind,
            Self::Missing(_) => Kind::ImageDirectory,
            Self::BeingMade(_) | Self::Awaited { .. } => Kind::Busy,
            Self::Incomplete(_) | Self::Exchanged(_) | Self::EndsSoon { .. } => Kind::ImageDamaged,
            Self::LowLevel(_) | Self::Option(_) | Self::Run | Self::Cgroup => Kind::Unsupported,
            Self::NoPlugin(_) => Kind::NoPlugin,
            Self::NotHeld => Kind::Freezer,
            Self::Mount(_) => Kind::Bundle,
            Self::Io { source, .. } => of_io(source, Kind::Io),
        }
    }
}
