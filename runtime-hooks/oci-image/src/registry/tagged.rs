//! A tag that always stands for the latest image of a repository, and for the next one while that
//! is being made.

use crate::document::announcement::{Announcement, EMPTY_BLOB};
use crate::document::manifest::MANIFEST;
use crate::elsewhere::Elsewhere;
use crate::{Digest, Manifest, OciImageError, Registry};

/// What a tag stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tagged {
    /// Nobody has ever used it.
    Nothing,
    /// An image of ours.
    Image(Box<Manifest>, Digest),
    /// One that is being made.
    Awaited(Announcement),
}

impl Registry {
    /// What a tag stands for.
    pub fn tagged(&self, tag: &str) -> Result<Tagged, OciImageError> {
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

    /// Says under a tag that an image is being made. If it fails, the tag is what it was.
    pub fn announce(&self, tag: &str, announcement: &Announcement) -> Result<(), OciImageError> {
        self.put(EMPTY_BLOB)?;
        self.put_manifest(tag, &announcement.to_text()).map(drop)
    }

    /// Gives an image that is there another tag. If it fails, the tag is what it was.
    pub fn tag_also(&self, tag: &str, image: &Digest) -> Result<(), OciImageError> {
        let (text, _) = self.document(&image.to_string(), &[MANIFEST])?;
        self.put_manifest(tag, &text).map(drop)
    }
}
