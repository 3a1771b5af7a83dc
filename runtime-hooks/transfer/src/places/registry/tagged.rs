//! A tag that always stands for the latest image of a repository, and for the next one while that
//! image is being made.

use stasis_oci_image::document::announcement::{Announcement, EMPTY_BLOB};
use stasis_oci_image::document::manifest::MANIFEST;
use stasis_oci_image::{Digest, Manifest, OciImageError};

use crate::places::{Elsewhere, Registry};

/// The state of a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// No manifest has the tag.
    Nothing,
    /// An image of ours.
    Image(Box<Manifest>, Digest),
    /// An image that is being made.
    Awaited(Announcement),
}

impl Registry {
    /// Reads the state of a tag.
    pub(crate) fn tagged(&self, tag: &str) -> Result<Tagged, OciImageError> {
        let (text, found) = match self.document(tag, &[MANIFEST]) {
            Err(OciImageError::NoTag { .. }) => return Ok(Tagged::Nothing),
            found => found?,
        };
        if let Some(announcement) = Announcement::from_text(&text)? {
            return Ok(Tagged::Awaited(announcement));
        }
        let manifest = Manifest::from_text(&text, &found.digest.to_string())?;
        Ok(Tagged::Image(Box::new(manifest), found.digest))
    }

    /// Announces under a tag that an image is being made. If it fails, the tag stays as it was.
    pub(crate) fn announce(
        &self,
        tag: &str,
        announcement: &Announcement,
    ) -> Result<(), OciImageError> {
        self.put(EMPTY_BLOB)?;
        self.put_manifest(tag, &announcement.to_text()).map(drop)
    }

    /// Gives a stored image another tag. If it fails, the tag stays as it was.
    pub(crate) fn tag_also(&self, tag: &str, image: &Digest) -> Result<(), OciImageError> {
        let (text, _) = self.document(&image.to_string(), &[MANIFEST])?;
        self.put_manifest(tag, &text).map(drop)
    }
}
