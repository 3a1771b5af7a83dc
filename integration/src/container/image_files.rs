//! The files of an image.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Returns every file of an image with a digest, without CRIU's logs and statistics.
pub fn contents(image: &Path) -> Result<BTreeMap<String, blake3::Hash>> {
    let mut contents = BTreeMap::new();
    for entry in fs::read_dir(image)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_log = name.ends_with(".log") || name.starts_with("stats-");
        if entry.file_type()?.is_file() && !is_log {
            contents.insert(name, blake3::hash(&fs::read(entry.path())?));
        }
    }
    Ok(contents)
}

/// Returns the manifest of an image.
pub fn manifest(image: &Path) -> Result<Value> {
    let path = image.join("stasis.json");
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

/// Makes the manifest one of a checkpoint that was cut off, which lists no files: changes in them
/// are then for CRIU and its plugin to find.
pub fn unlist(image: &Path) -> Result<()> {
    let mut manifest = manifest(image)?;
    let fields = manifest.as_object_mut().context("no object")?;
    fields.remove("files").context("it lists no files")?;
    Ok(fs::write(image.join("stasis.json"), manifest.to_string())?)
}
