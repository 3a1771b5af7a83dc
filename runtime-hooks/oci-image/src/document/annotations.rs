//! What annotations are called.

use std::collections::BTreeMap;

/// What a document says of itself, for people and programs.
pub type Annotations = BTreeMap<String, String>;

/// When the checkpoint was made, RFC 3339.
pub const CREATED: &str = "org.opencontainers.image.created";
/// The tag, in a layout.
pub const NAME: &str = "org.opencontainers.image.ref.name";
/// The container, as checkpointctl, containerd and CRI-O look for it.
pub const CONTAINER: &str = "org.criu.checkpoint.container.name";
