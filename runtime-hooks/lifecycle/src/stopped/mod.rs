//! The names of images of stopped containers, here and in a registry, and the images that are not
//! there yet.

pub(crate) mod being_made;
pub(crate) mod key;
pub mod push_again;
pub mod repository;
pub mod to_push;

use std::path::Path;

use stasis_engine::image::directory::is_settled;
use stasis_engine::image::manifest::Manifest;

/// The end of the names of these images: only such are removed in favour of later ones.
pub const ENDING: &str = "-stop";
/// The tag of the newest image of a key.
pub const LATEST: &str = "latest";

/// Returns the tag of an image: tags have no colons (OCI distribution, "Pulling manifests").
pub(crate) fn tag_of(image: &Path) -> String {
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    name.replace(':', "-")
}

/// Whether an image is one that can be pushed: the list of its files is written last.
pub fn is_complete(image: &Path) -> bool {
    let manifest = Manifest::read(image).ok().flatten();
    is_settled(image) && manifest.is_some_and(|manifest| manifest.files.is_some())
}
