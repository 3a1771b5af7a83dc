//! What a document says of a blob.

use serde::{Deserialize, Serialize};

use super::annotations::Annotations;
use crate::digest::Hashed;
use crate::{Digest, OciImageError};

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
    /// Whether all of it was read, and nothing else.
    pub fn check<R>(&self, read: Hashed<R>) -> Result<(), OciImageError> {
        let (digest, bytes, _) = read.end();
        match (digest, bytes) == (self.digest, self.size) {
            true => Ok(()),
            false => Err(OciImageError::blob(
                self.digest,
                "its bytes have another digest",
            )),
        }
    }

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
