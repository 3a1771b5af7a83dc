//! GPU contents that lie apart from their images, and where those images are.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use stasis_host::time::parsed;
use stasis_memory_store::{ImageId, ImagePlace, Index, StoreError};

use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::places::{self, Places, Store};
use crate::image::directory;

/// Contents that were not written to for this long are not being written.
const CUT_OFF: Duration = Duration::from_secs(3600);

/// The contents of one image.
#[derive(Debug)]
pub struct Apart {
    /// The id that the image has as well.
    pub image_id: ImageId,
    /// The container, if known.
    pub container: Option<String>,
    /// When the checkpoint began.
    pub created: Option<String>,
    /// Where they are.
    pub directory: PathBuf,
    /// Their size.
    pub bytes: u64,
    /// The path where the image was written.
    pub image_path: Option<PathBuf>,
    /// Where it is now; `None`: that path is not known.
    image: Option<ImagePlace>,
    /// Whether all of them exist: otherwise their operation was interrupted, or is under way.
    complete: bool,
    /// The time since the last write to them.
    idle: Duration,
}

/// All contents apart from images on this node, in the order of their checkpoints.
pub fn all(places: &Places) -> Result<Vec<Apart>, StoreError> {
    let Some(parent) = &places.apart else {
        return Ok(Vec::new());
    };
    let stores = places::all_in(parent)?;
    Ok(stores.into_iter().map(Apart::of).collect())
}

impl Apart {
    fn of(store: Store) -> Self {
        let Store { stored, origin } = store;
        let place =
            |origin: &Origin| Index::find(&directory::places(&origin.image_path), stored.image_id);
        let image = origin.as_ref().map(place);
        Self {
            image_id: stored.image_id,
            created: origin.as_ref().map(|origin| origin.created.clone()),
            container: origin.as_ref().map(|origin| origin.container.clone()),
            bytes: stored.bytes,
            image_path: origin.map(|origin| origin.image_path),
            image,
            complete: stored.complete,
            idle: stored.modified.elapsed().unwrap_or_default(),
            directory: stored.directory,
        }
    }

    /// Whether their checkpoint began earlier; of what does not say when, that is not known.
    pub fn is_from_before(&self, time: SystemTime) -> bool {
        let created = self.created.as_deref().and_then(parsed);
        created.is_some_and(|created| created < time)
    }

    /// Why their image cannot be found, if it cannot. It may be in an archive, or in the store of
    /// an engine that has packed it.
    pub fn why_orphaned(&self) -> Option<&'static str> {
        match &self.image {
            _ if !self.complete => {
                (self.idle > CUT_OFF).then_some("their checkpoint was interrupted")
            }
            Some(ImagePlace::At(_)) => None,
            Some(ImagePlace::OfAnother) => Some("another image is where theirs was written"),
            Some(ImagePlace::Nowhere) => Some("their image is not where it was written"),
            // An operation that is under way writes it last.
            None | Some(ImagePlace::Unknown(_)) => {
                (self.idle > CUT_OFF).then_some("it is not known where their image was written")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk_memory::places::tests::fixtures::{node, store_holes};
    use crate::bulk_memory::places::tests::store;
    use std::fs;

    #[test]
    fn contents_without_an_image_are_told_and_those_of_one_are_not() {
        let node = node();
        let image = node.directory.path().join("image");
        fs::create_dir(&image).unwrap();
        let its = places::of_image(&node.apart, ImageId::new(1));
        store_holes(&image, Some(its.clone()), 1);
        let origin = Origin::new("c1", &image, SystemTime::now());
        origin.write(&its).unwrap();
        let orphaned = || -> Vec<_> {
            let all = all(&Places::of(&node.settings)).unwrap();
            let why = |apart: &Apart| Some((apart.image_id, apart.why_orphaned()?));
            all.iter().filter_map(why).collect()
        };
        assert_eq!(orphaned(), []);
        store(&node.apart, 2, &origin);
        let replaced = "another image is where theirs was written";
        assert_eq!(orphaned(), [(ImageId::new(2), replaced)]);
        fs::remove_dir_all(&image).unwrap();
        let gone = "their image is not where it was written";
        assert_eq!(orphaned(), [1, 2].map(|id| (ImageId::new(id), gone)));
        // It may be written just now.
        fs::create_dir(places::of_image(&node.apart, ImageId::new(3))).unwrap();
        assert_eq!(orphaned().len(), 2);
    }
}
