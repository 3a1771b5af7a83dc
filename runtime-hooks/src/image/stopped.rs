//! What images of stopped containers are called, here and in a registry.

use std::path::Path;

/// How the names of these images end: only such are removed in favour of later ones.
pub(crate) const ENDING: &str = "-stop";
/// The tag of the newest image of a key.
pub(crate) const LATEST: &str = "latest";

/// The tag of an image: a registry's tags have no colons (OCI distribution, "Pulling manifests").
pub(crate) fn tag_of(image: &Path) -> String {
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    name.replace(':', "-")
}
