//! The annotations of stasis that a container may have.

use similar::TextDiff;

use crate::container::spec::Spec;

/// The prefix of all of them.
const PREFIX: &str = "io.stasis.";
/// The prefix of hooks, which are refused in their own words (`hooks.rs`).
pub(in crate::container) const HOOK: &str = "io.stasis.hook.";

/// The checkpoint that the container asks for when it is stopped.
pub const CHECKPOINT: &str = "io.stasis.checkpoint";
/// The key that `io.stasis.restore=latest:KEY` of another container names.
pub const CHECKPOINT_KEY: &str = "io.stasis.checkpoint.key";
/// The GPUs on which the image is restored.
pub(crate) const GPU_MAP: &str = "io.stasis.gpu-map";
/// Asks that NCCL uses only memory that a restore gives back.
pub(crate) const NCCL: &str = "io.stasis.nccl";
/// Declares that no GPU of the container has peer access to another, or asks that PyTorch uses
/// memory with which it does no harm.
pub(crate) const PEER_ACCESS: &str = "io.stasis.peer-access";
/// Its value if no process has peer access.
pub(crate) const NO_PEER_ACCESS: &str = "none";
/// The image that the container is to begin with.
pub const RESTORE: &str = "io.stasis.restore";

const KNOWN: [&str; 6] = [
    CHECKPOINT,
    CHECKPOINT_KEY,
    GPU_MAP,
    NCCL,
    PEER_ACCESS,
    RESTORE,
];

/// An annotation that has our prefix and no meaning.
#[derive(Debug, thiserror::Error)]
#[error("the annotation {given:?} of the container is unknown; did you mean {nearest}?")]
pub struct UnknownAnnotation {
    given: String,
    nearest: &'static str,
}

/// Refuses unknown annotations: a container that asks for something by a misspelt name would run
/// without it, unnoticed until it is needed.
pub(in crate::container) fn refuse_unknown(spec: &Spec) -> Result<(), UnknownAnnotation> {
    let is_unknown =
        |name: &&str| name.starts_with(PREFIX) && !name.starts_with(HOOK) && !KNOWN.contains(name);
    let Some(given) = spec.annotations().find(is_unknown) else {
        return Ok(());
    };
    let likeness = |known: &&str| TextDiff::from_chars(given, *known).ratio();
    let nearest = KNOWN
        .into_iter()
        .max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    Err(UnknownAnnotation {
        given: given.to_owned(),
        nearest: nearest.unwrap_or_default(),
    })
}
