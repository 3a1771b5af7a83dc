//! Finds the place of an image.

use std::path::{Path, PathBuf};

use crate::{ImageId, Index, STORE_INDEX_FILE, StoreError};

/// The place of an image, among the places where it may be.
#[derive(Debug)]
pub enum ImagePlace {
    /// The image is in this directory.
    At(PathBuf),
    /// Another image is in one of the places.
    OfAnother,
    /// No place has an image.
    Nowhere,
    /// A place cannot be read, and may have the image.
    Unknown(StoreError),
}

impl Index {
    /// Finds the image of this id. An image that moves meanwhile is not missed if it passes the
    /// places in their order.
    #[must_use]
    pub fn find(places: &[PathBuf], id: ImageId) -> ImagePlace {
        let mut found = ImagePlace::Nowhere;
        for place in places {
            match Self::read(place) {
                Ok(Some(index)) if index.image_id == id => return ImagePlace::At(place.clone()),
                Err(error) => found = ImagePlace::Unknown(error),
                Ok(Some(_)) if matches!(found, ImagePlace::Nowhere) => {
                    found = ImagePlace::OfAnother;
                }
                Ok(_) => {}
            }
        }
        found
    }

    /// Whether a store was written with this index, which image and store both have. An image that
    /// names another checkpoint's store must not get that store's memory: only an image with the
    /// same index can.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Missing`] if its checkpoint was interrupted.
    pub fn is_of_store(&self, store: &Path) -> Result<bool, StoreError> {
        let missing = || StoreError::Missing {
            path: store.join(STORE_INDEX_FILE),
        };
        Ok(Self::read_store(store)?.ok_or_else(missing)? == *self)
    }
}

impl ImagePlace {
    /// Whether the image is in none of the places. A place that cannot be read may have it.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::OfAnother | Self::Nowhere)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{INDEX_FILE, PacksIn};

    #[test]
    fn it_is_found_beside_others_and_what_cannot_be_read_may_be_it() {
        let parent = tempfile::tempdir().unwrap();
        let places = ["none", "first", "second"].map(|name| parent.path().join(name));
        let write = |place: &PathBuf, text: &[u8]| {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join(INDEX_FILE), text).unwrap();
        };
        let index = |id| Index {
            image_id: ImageId::new(id),
            packs_in: PacksIn::Image,
            packs: Vec::new(),
            processes: Vec::new(),
        };
        let find = || Index::find(&places, ImageId::new(1));
        assert!(matches!(find(), ImagePlace::Nowhere));
        write(&places[1], &index(2).encode());
        assert!(matches!(find(), ImagePlace::OfAnother) && find().is_none());
        write(&places[1], b"damaged");
        assert!(matches!(find(), ImagePlace::Unknown(_)) && !find().is_none());
        write(&places[2], &index(1).encode());
        assert!(matches!(find(), ImagePlace::At(place) if place == places[2]));
    }
}
