//! Why a container does not begin with an image, and is started as if it had asked for none.

use std::io;
use std::path::PathBuf;

use crate::pod::NoNamespace;
use crate::stopped::repository::NoRepository;
use stasis_engine::error::Refusal;
use stasis_engine::error::kind::Kind;
use stasis_engine::error::reason::Reason;

/// Why a container does not begin with an image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoFirstImage {
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
    #[error("the caller's option --{0} is not known at a restore")]
    Option(&'static str),
    /// `run` would start it at once.
    #[error("the container is not created first and started then")]
    Run,
}

impl NoFirstImage {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Off
            | Self::Namespace(_)
            | Self::NoRegistry
            | Self::Repository(_)
            | Self::OtherRegistry { .. } => Kind::ImageNotAllowed,
            Self::Pull { kind, .. } => *kind,
            Self::Missing(_) => Kind::ImageDirectory,
            Self::BeingMade(_) | Self::Awaited { .. } => Kind::Busy,
            Self::Incomplete(_) | Self::EndsSoon { .. } => Kind::ImageDamaged,
            Self::Option(_) | Self::Run => Kind::Unsupported,
        }
    }
}

impl From<NoFirstImage> for Refusal {
    fn from(why: NoFirstImage) -> Self {
        Reason::new(why.kind(), why).into()
    }
}

/// Returns why no image was found, if that is why an operation did not begin.
pub(super) fn no_first_image(refusal: &Refusal) -> Option<&NoFirstImage> {
    match refusal {
        Refusal::Reason(reason) => reason.get(),
        _ => None,
    }
}

/// Returns whether there is no complete image.
pub(super) fn is_missing(refusal: &Refusal) -> bool {
    matches!(no_first_image(refusal), Some(NoFirstImage::Missing(_)))
}
