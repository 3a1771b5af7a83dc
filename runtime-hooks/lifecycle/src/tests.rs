//! Specifications and images for the tests of the modules.

use std::fs;
use std::path::Path;

use serde_json::json;
use stasis_engine::container::spec::Spec;
use stasis_engine::image::directory::INVENTORY;

use crate::pod::CONTAINERD;

/// The specification of a container of a pod in this namespace, or of no pod.
pub(crate) fn spec_of(namespace: Option<&str>) -> Spec {
    let bundle = tempfile::tempdir().unwrap();
    let annotations = match namespace {
        Some(namespace) => json!({CONTAINERD.namespace: namespace}),
        None => json!({}),
    };
    let spec = json!({"annotations": annotations}).to_string();
    fs::write(bundle.path().join("config.json"), spec).unwrap();
    Spec::read(bundle.path()).unwrap()
}

/// Makes images in a directory; what their tests look at is that of whole ones.
pub(crate) fn make_images(directory: &Path, images: &[&str]) {
    for image in images {
        let image = directory.join(image);
        fs::create_dir_all(&image).unwrap();
        fs::write(image.join(INVENTORY), "inventory").unwrap();
    }
}
