//! Contents that the other side has already, by the lists of contents of its images.

use std::collections::HashSet;

use stasis_memory_store::{BlobContents, LargeFile, MOST_CONTENTS_BYTES, decode_contents};
use stasis_oci_image::{Kind, Manifest};

use crate::error::MoveError;
use crate::local::source::Source;
use crate::places::Elsewhere;

/// The number of images looked at.
const EARLIER: usize = 16;

/// Contents of blobs that images there name.
#[derive(Debug, Default)]
pub(super) struct RemoteContents {
    pub(super) memory: Vec<BlobContents>,
    pub(super) files: Vec<BlobContents>,
}

impl RemoteContents {
    /// Looks at the images that are likely to share contents with an image, if that has memory or
    /// large files.
    pub(super) fn find(
        place: &dyn Elsewhere,
        tag: &str,
        image: &Source,
        large: &[LargeFile<'_>],
    ) -> Result<Self, MoveError> {
        let mut remote = Self::default();
        if image.memory.is_none() && large.is_empty() {
            return Ok(remote);
        }
        for image in place.images(tag, EARLIER)? {
            remote.add(place, &image);
        }
        Ok(remote)
    }

    /// Adds the blobs of an image's list; a list that cannot be read adds none.
    fn add(&mut self, place: &dyn Elsewhere, image: &Manifest) {
        let list = image.layer(Kind::Contents);
        let list = list.and_then(|list| place.read(list, MOST_CONTENTS_BYTES).ok());
        let blobs = list.and_then(|list| decode_contents(&list).ok());
        let blobs = blobs.unwrap_or_default();
        let known = |kind| -> Vec<BlobContents> {
            let layers = image.layers(kind).map(|layer| (layer.digest, layer.size));
            let layers: HashSet<_> = layers.collect();
            let named = |blob: &&BlobContents| layers.contains(&(blob.digest.into(), blob.bytes));
            blobs.iter().filter(named).cloned().collect()
        };
        self.memory.extend(known(Kind::Memory));
        self.files.extend(known(Kind::Files));
    }
}
