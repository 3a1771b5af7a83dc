//! An OCI layout in a test host, as any other program may have written it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stasis_integration::host::installed::StasisHost;

/// The media type of bulk memory (docs/internals/image-format.md).
const MEMORY: &str = "application/vnd.stasis.checkpoint.memory.v1";

/// The layout.
pub(super) struct Layout<'l> {
    stasis: &'l StasisHost,
    /// The layout's path in the host.
    directory: &'l str,
}

impl<'l> Layout<'l> {
    pub(super) fn at(stasis: &'l StasisHost, directory: &'l str) -> Self {
        Self { stasis, directory }
    }

    /// Returns `stasis`' reference to an image in the layout.
    pub(super) fn tagged(&self, tag: &str) -> String {
        format!("oci:{}:{tag}", self.directory)
    }

    /// Returns the layout's path in the host.
    pub(super) fn path_inside(&self) -> String {
        self.directory.to_owned()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.stasis.path(format!("{}/{name}", self.directory))
    }

    pub(super) fn blob(&self, digest: &str) -> PathBuf {
        self.path(&format!("blobs/{}", digest.replace(':', "/")))
    }

    pub(super) fn manifest(&self, tag: &str) -> Result<Value> {
        let index: Value = serde_json::from_slice(&fs::read(self.path("index.json"))?)?;
        let manifests = index["manifests"].as_array().context("no manifests")?;
        let name = |one: &&Value| one["annotations"]["org.opencontainers.image.ref.name"] == tag;
        let found = manifests.iter().find(name).context("no such tag")?;
        let digest = found["digest"].as_str().context("no digest")?;
        Ok(serde_json::from_slice(&fs::read(self.blob(digest))?)?)
    }

    /// Returns the digests of an image's blobs of memory.
    pub(super) fn memory(&self, tag: &str) -> Result<Vec<String>> {
        let manifest = self.manifest(tag)?;
        let layers = manifest["layers"].as_array().context("no layers")?;
        let memory = layers.iter().filter(|layer| layer["mediaType"] == MEMORY);
        let digests = memory.filter_map(|layer| layer["digest"].as_str());
        Ok(digests.map(str::to_owned).collect())
    }

    /// Adds a manifest under this tag, whatever its contents.
    pub(super) fn forge(&self, tag: &str, manifest: &Value) -> Result<()> {
        let text = manifest.to_string();
        let digest = format!("sha256:{:x}", Sha256::digest(&text));
        fs::write(self.blob(&digest), &text)?;
        let mut index: Value = serde_json::from_slice(&fs::read(self.path("index.json"))?)?;
        let manifests = index["manifests"].as_array_mut().context("no manifests")?;
        manifests.push(json!({
            "mediaType": manifest["mediaType"], "digest": digest, "size": text.len(),
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }));
        Ok(fs::write(self.path("index.json"), index.to_string())?)
    }
}
