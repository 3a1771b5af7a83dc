//! Why a container does not begin with an image, and is started as if it had asked for none.

use std::io;
use std::path::PathBuf;

use crate::container::at_stop::repository::NoRepository;
use crate::container::pod::NoNamespace;
use crate::error::io_kind::of_io;
use crate::error::kind::Kind;

/// Why a container does not begin with an image.
#[derive(Debug, thiserror::Error)]
pub enum NoFirstImage {
    /// The settings have no directory for such images.
    #[error("the settings let no container begin with an image (restore.at_create)")]
    Off,
    /// Its specification says two things about whose it is.
    #[error(transparent)]
    Namespace(#[from] NoNamespace),
    /// Somebody makes one, and is not done.
    #[error(
        "an image of the key is being made, of a container that is stopped, and is not complete"
    )]
    BeingMade(#[source] io::Error),
    /// There is none.
    #[error("there is no complete image in {0}")]
    Missing(PathBuf),
    /// Its checkpoint was cut off.
    #[error("the image {0} is not complete: nothing in it says which files it should have")]
    Incomplete(PathBuf),
    /// The settings have no registry for such images.
    #[error("the settings let no container begin with an image of a registry (restore.registry)")]
    NoRegistry,
    /// It is another registry, another part of it, or another namespace's.
    #[error("the image {given} is not in {allowed}, where this container may name images")]
    OtherRegistry {
        /// What was asked for.
        given: String,
        /// What its name has to begin with.
        allowed: String,
    },
    /// It is not here.
    #[error("the image {reference} cannot be pulled: {why}")]
    Pull {
        /// What was asked for.
        reference: String,
        /// Why, for scripts.
        kind: Kind,
        /// Why.
        why: String,
    },
    /// The key is no repository.
    #[error(transparent)]
    Repository(#[from] NoRepository),
    /// Somebody makes one elsewhere, and is not done.
    #[error(
        "an image of the key is being made on {host} since {since}, of a container that is stopped \
         ({image}), and is not in the registry yet"
    )]
    Awaited {
        /// What it will be called.
        image: String,
        /// Where it is made.
        host: String,
        /// Since when.
        since: String,
    },
    /// crun puts processes into their cgroup when CRIU has let them go.
    #[error("{0} is no low-level runtime that can hold what it restores; runc is")]
    LowLevel(String),
    /// `create` has an option that no restore has.
    #[error("the caller's option --{0} is not known at a restore")]
    Option(&'static str),
    /// `run` would start it at once.
    #[error("the container is not created first and started then")]
    Run,
    /// It is not known where the processes will be, or somebody is there.
    #[error("the container's cgroup is not known before it is made, or is in use")]
    Cgroup,
    /// Nobody else can hold processes.
    #[error("the CRIU plugin that holds processes cannot be used: {0}")]
    NoPlugin(String),
    /// CRIU has let processes run.
    #[error("the restored processes are not held in the container's cgroup")]
    NotHeld,
    /// A mount of the specification is not in the image.
    #[error("the image has no mount at {0}, and the new container has")]
    Mount(PathBuf),
    /// What the specification says cannot be compared with what was restored, or be set.
    #[error("cannot {action} of the restored container")]
    Io {
        /// "see the mounts", "set the host name"
        action: &'static str,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// It is to be started from another image than it was created from.
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
            Self::Incomplete(_) | Self::Exchanged(_) => Kind::ImageDamaged,
            Self::LowLevel(_) | Self::Option(_) | Self::Run | Self::Cgroup => Kind::Unsupported,
            Self::NoPlugin(_) => Kind::NoPlugin,
            Self::NotHeld => Kind::Freezer,
            Self::Mount(_) => Kind::Bundle,
            Self::Io { source, .. } => of_io(source, Kind::Io),
        }
    }
}
