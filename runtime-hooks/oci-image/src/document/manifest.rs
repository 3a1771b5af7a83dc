//! The manifest of an image of ours.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::annotations::Annotations;
use super::descriptor::Descriptor;
use super::parse;
use crate::{Digest, OciImageError};

/// OCI's media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The type that distinguishes an image of ours from a container image.
pub const ARTIFACT: &str = "application/vnd.stasis.checkpoint.v1";
/// `stasis.json`.
const CONFIG: &str = "application/vnd.stasis.checkpoint.config.v1+json";
/// A size that registries do not refuse.
pub const MOST_MANIFEST_BYTES: u64 = 1 << 20;
/// A number that registries do not refuse.
const MOST_LAYERS: usize = 400;
/// The most that `image::manifest` reads.
const MOST_CONFIG_BYTES: u64 = 96 << 20;
pub(super) const SCHEMA: u32 = 2;

/// The kind of a layer's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// CRIU's files, but for the large ones.
    Criu,
    /// The index of the blobs of large files of CRIU.
    FilesIndex,
    /// Large files of CRIU.
    Files,
    /// The index of bulk memory.
    Index,
    /// The list of the contents of each blob of memory, or of files.
    Contents,
    /// Bulk memory.
    Memory,
    /// The files that the engine has put beside the image.
    Engine,
    /// The container's writable layer.
    Writable,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Criu,
        Self::FilesIndex,
        Self::Files,
        Self::Index,
        Self::Contents,
        Self::Memory,
        Self::Engine,
        Self::Writable,
    ];

    /// Returns the media type in descriptors.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Criu => "application/vnd.stasis.checkpoint.criu.v1.tar+zstd",
            Self::FilesIndex => "application/vnd.stasis.checkpoint.files-index.v1",
            Self::Files => "application/vnd.stasis.checkpoint.files.v1",
            Self::Index => "application/vnd.stasis.checkpoint.index.v1",
            Self::Contents => "application/vnd.stasis.checkpoint.contents.v1",
            Self::Memory => "application/vnd.stasis.checkpoint.memory.v1",
            Self::Engine => "application/vnd.stasis.checkpoint.engine.v1.tar+zstd",
            Self::Writable => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }

    fn of(descriptor: &Descriptor) -> Option<Self> {
        let media_type = descriptor.media_type.as_str();
        let is_its = |kind: &Self| kind.media_type() == media_type;
        Self::ALL.into_iter().find(is_its)
    }

    /// Returns the most bytes of such a blob.
    fn most_bytes(self) -> u64 {
        match self {
            Self::Criu | Self::Files | Self::Memory | Self::Engine | Self::Writable => 9 << 30,
            // The most that stasis-memory-store reads.
            Self::FilesIndex | Self::Index => 256 << 20,
            Self::Contents => 64 << 20,
        }
    }
}

/// The manifest of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub(super) schema_version: u32,
    pub(super) media_type: String,
    /// Empty for container images.
    #[serde(default)]
    pub(super) artifact_type: String,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
    /// The image that it is a checkpoint of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub(super) annotations: Annotations,
}

impl Manifest {
    /// Makes a manifest of these blobs.
    #[must_use]
    pub fn new(
        config: (Digest, u64),
        layers: impl IntoIterator<Item = (Kind, Digest, u64)>,
        annotations: Annotations,
    ) -> Self {
        let layers = layers.into_iter();
        let layers =
            layers.map(|(kind, digest, size)| Descriptor::new(kind.media_type(), digest, size));
        Self {
            schema_version: SCHEMA,
            media_type: MANIFEST.to_owned(),
            artifact_type: ARTIFACT.to_owned(),
            config: Descriptor::new(CONFIG, config.0, config.1),
            layers: layers.collect(),
            subject: None,
            annotations,
        }
    }

    /// Sets the manifest of the image that this one belongs to.
    #[must_use]
    pub fn with_subject(self, subject: Option<Descriptor>) -> Self {
        Self { subject, ..self }
    }

    /// Returns the manifest of the image that this one belongs to.
    pub fn subject(&self) -> Option<&Descriptor> {
        self.subject.as_ref()
    }

    /// Returns its annotations.
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// Returns the blob with `stasis.json`.
    pub fn config(&self) -> &Descriptor {
        &self.config
    }

    /// Returns the blobs of a kind, in their order.
    pub fn layers(&self, kind: Kind) -> impl Iterator<Item = &Descriptor> {
        let is_its = move |layer: &&Descriptor| Kind::of(layer) == Some(kind);
        self.layers.iter().filter(is_its)
    }

    /// Returns the blob of a kind of which an image has one at most.
    pub fn layer(&self, kind: Kind) -> Option<&Descriptor> {
        self.layers(kind).next()
    }

    /// Returns all its blobs, the config first.
    pub fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }

    /// Returns its annotation of this name.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }

    /// Returns the length of all its blobs.
    pub fn bytes(&self) -> u64 {
        let sizes = self.blobs().map(|blob| blob.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Writes the manifest; fails if it could not be read again.
    pub fn to_text(&self) -> Result<Vec<u8>, OciImageError> {
        let refused = |what| OciImageError::document("the manifest for the image", what);
        self.check().map_err(refused)?;
        let text = serde_json::to_vec(self).map_err(|error| refused(error.to_string()))?;
        if text.len() as u64 > MOST_MANIFEST_BYTES {
            return Err(refused("it has more than 1 MiB".to_owned()));
        }
        Ok(text)
    }

    /// Reads an untrusted manifest; `named` is its name in messages.
    pub fn from_text(text: &[u8], named: &str) -> Result<Self, OciImageError> {
        let refused = |what| OciImageError::document(format!("the manifest {named}"), what);
        let manifest: Self = parse(text).map_err(refused)?;
        if manifest.artifact_type != ARTIFACT {
            return Err(OciImageError::NotOurs {
                document: format!("the manifest {named}"),
                artifact: manifest.artifact_type,
            });
        }
        manifest.check().map_err(refused)?;
        Ok(manifest)
    }

    /// Checks the rules that the types do not express.
    fn check(&self) -> Result<(), String> {
        if self.schema_version != SCHEMA || self.media_type != MANIFEST {
            return Err("it is not a manifest of OCI's version 2".to_owned());
        }
        if self.config.media_type != CONFIG {
            return Err("its config is not that of an image of stasis".to_owned());
        }
        if self.layers.len() > MOST_LAYERS || self.config.size > MOST_CONFIG_BYTES {
            return Err("it has more layers, or a larger config, than an image has".to_owned());
        }
        self.check_layers()?;
        let count = |kind| self.layers(kind).count();
        if count(Kind::Engine) > 1 || count(Kind::Writable) > count(Kind::Engine) {
            return Err("it has files of more than one engine, or a layer of none".to_owned());
        }
        let indexes = [Kind::Index, Kind::FilesIndex].map(count);
        let needs_list = usize::from(indexes != [0, 0]);
        if indexes.iter().any(|count| *count > 1) || count(Kind::Contents) != needs_list {
            return Err("it has not one index and one list of contents".to_owned());
        }
        if count(Kind::Criu) != 1 {
            return Err("it has not one layer of CRIU's files".to_owned());
        }
        let has_none = |kind, index| count(kind) > 0 && index == 0;
        if has_none(Kind::Memory, indexes[0]) || has_none(Kind::Files, indexes[1]) {
            return Err("it has memory or files, and no index of them".to_owned());
        }
        Ok(())
    }

    fn check_layers(&self) -> Result<(), String> {
        let mut digests = HashSet::from([self.config.digest]);
        // Layers of files and of memory may have the same bytes: they become different things.
        let mut of_files = digests.clone();
        for layer in &self.layers {
            let Descriptor {
                media_type,
                digest,
                size,
                ..
            } = layer;
            let kind = Kind::of(layer);
            let kind = kind.ok_or_else(|| format!("a layer of type {media_type:?} is unknown"))?;
            if *size > kind.most_bytes() {
                return Err(format!("{digest} has more bytes than any: {size}"));
            }
            let is_new = match kind {
                Kind::Files => of_files.insert(*digest),
                _ => digests.insert(*digest),
            };
            if !is_new {
                return Err(format!("{digest} is listed twice"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
