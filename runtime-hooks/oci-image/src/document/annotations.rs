//! The names of annotations.

use std::collections::BTreeMap;

/// The annotations of a document, for people and programs.
pub type Annotations = BTreeMap<String, String>;

/// The time of the checkpoint, RFC 3339.
pub const CREATED: &str = "org.opencontainers.image.created";
/// The name of the directory that was pushed, for an image of a stopped container.
pub const IMAGE: &str = "io.stasis.image";
/// The tag, in a layout.
pub const NAME: &str = "org.opencontainers.image.ref.name";
/// The container, as checkpointctl, containerd and CRI-O look for it. This name and those that
/// follow are of checkpointctl (`lib/annotations.go`, 1.4).
pub const CONTAINER: &str = "org.criu.checkpoint.container.name";
/// The engine, as checkpointctl shows it.
pub const ENGINE: &str = "org.criu.checkpoint.engine.name";
/// The pod of the container.
pub const POD: &str = "org.criu.checkpoint.pod.name";
/// The namespace of the pod.
pub const NAMESPACE: &str = "org.criu.checkpoint.pod.namespace";
/// The container image, as the engine resolved its name.
pub const IMAGE_NAME: &str = "org.criu.checkpoint.rootfsImageName";
/// The container image, as the user asked for it.
pub const IMAGE_ASKED: &str = "org.criu.checkpoint.rootfsImageUserRequested";
/// The digest or id of the container image.
pub const IMAGE_ID: &str = "org.criu.checkpoint.rootfsImageID";
/// The OCI runtime, as the engine calls it.
pub const RUNTIME: &str = "org.criu.checkpoint.runtime.name";
/// The version of CRIU.
pub const CRIU: &str = "org.criu.checkpoint.criu.version";
/// The architecture of the machine, as Go names it.
pub const ARCHITECTURE: &str = "org.criu.checkpoint.host.arch";
/// The kernel of the machine.
pub const KERNEL: &str = "org.criu.checkpoint.host.kernel";
