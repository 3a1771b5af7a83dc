//! What a document says of a blob.

use serde::{Deserialize, Serialize};

use super::annotations::Annotations;
use crate::Digest;

/// A blob: what it is, its name and length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// Its name.
    pub digest: Digest,
    /// Its length, bytes.
    pub size: u64,
    /// Of a manifest: what it is a manifest of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// What is said of it here.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
}

impl Descriptor {
    /// One without annotations.
    #[must_use]
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest,
            size,
            artifact_type: None,
            annotations: Annotations::new(),
        }
    }
}
