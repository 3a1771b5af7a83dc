//! Why an engine has no way to a checkpoint or restore.

use std::path::PathBuf;

use stasis_engine::error::kind::Kind;

use super::criu_options::NoOption;

/// Why there is no way.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoWay {
    /// The engine cannot do it in the requested form.
    #[error("{0}")]
    Engine(String),
    /// The engine has no such option.
    #[error(transparent)]
    Option(#[from] NoOption),
    /// The image's place is missing from the request, or wrong.
    #[error("{0}")]
    NoImage(String),
    /// It cannot be the name of a container.
    #[error("{0}")]
    NoContainer(String),
    /// No engine knows the container; `asked` has the answer of each.
    #[error("no engine has a container {name} to restore; {advice}")]
    Nowhere {
        name: String,
        advice: &'static str,
        asked: Vec<String>,
    },
    /// podman refuses a paused container.
    #[error(
        "it is paused, and podman checkpoints only running containers; run: podman unpause {0}; \
         nothing was done"
    )]
    Paused(String),
    /// The runtime cannot be used.
    #[error("there is no {0}: install stasis again")]
    NoRuntime(PathBuf),
}

impl NoWay {
    /// Lists the engines that have no such container, or did not answer.
    pub(super) fn notes(&self) -> &[String] {
        match self {
            Self::Nowhere { asked, .. } => asked,
            _ => &[],
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Engine(_) | Self::Option(_) => Kind::Engine,
            Self::NoImage(_) => Kind::ImageDirectory,
            Self::NoContainer(_) | Self::Nowhere { .. } => Kind::NoContainer,
            Self::Paused(_) => Kind::ContainerPaused,
            Self::NoRuntime(_) => Kind::LowLevelRuntime,
        }
    }
}
