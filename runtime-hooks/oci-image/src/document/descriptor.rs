//! The descriptor of a blob in a document.

use serde::{Deserialize, Serialize};

use super::annotations::Annotations;
use crate::digest::Hashed;
use crate::{Digest, OciImageError};

/// A blob: its type, name and length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its media type.
    pub media_type: String,
    /// Its name.
    pub digest: Digest,
    /// Its length, bytes.
    pub size: u64,
    /// The artifact type of a manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Its annotations in this document.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
}

impl Descriptor {
    /// Checks that all of the blob was read, and nothing else.
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

    /// Makes a descriptor without annotations.
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
