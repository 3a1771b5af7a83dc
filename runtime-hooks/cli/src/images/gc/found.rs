//! This machine's images, with the facts by which some are chosen for removal.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use stasis_config::Settings;
use stasis_engine::bulk_memory::apart::{self, Apart};
use stasis_engine::bulk_memory::in_use::Removed;
use stasis_engine::bulk_memory::places::Places;
use stasis_engine::error::io_kind::of_store;
use stasis_engine::error::kind::Kind;
use stasis_engine::image::directory::in_use::hold_alone;
use stasis_engine::image::directory::{
    ImageDirectoryError, has_rest, is_settled, removal, remove_rest,
};
use stasis_engine::image::manifest::{Manifest, ManifestError};
use stasis_engine::image::retention::{Completeness, state_of};
use stasis_host::time::parsed;
use stasis_memory_store::{ImageId, StoreError, refuse_arriving};

use crate::command_error::CommandError;
use crate::images::{bytes_in, known};

/// An image.
#[derive(Debug)]
pub(super) struct Image {
    /// The canonical path, without links.
    pub(super) directory: PathBuf,
    pub(super) container: String,
    pub(super) created: String,
    /// `None` if the manifest has no valid time.
    pub(super) created_at: Option<SystemTime>,
    /// Whether the log names it: it was made before the images that the log names later.
    pub(super) is_logged: bool,
    pub(super) state: Completeness,
    /// Bytes of its files, and of the GPU contents that are stored for it alone.
    pub(super) bytes: u64,
    pub(super) image_id: Option<ImageId>,
    /// Its GPU contents, if they lie apart from it.
    pub(super) apart: Option<Apart>,
    /// Whether a later checkpoint into its directory was cut off, or is under way.
    pub(super) has_rest: bool,
}

/// Finds all images that `stasis images` lists except Docker's, in the order of their checkpoints,
/// the oldest first. Leaves out an image that cannot be read, and one that the next checkpoint or
/// restore puts into its place.
pub(super) fn images(settings: &Settings) -> Result<Vec<Image>, CommandError> {
    let places = Places::of(settings);
    let mut stored = apart::all(settings)?;
    let logged = known::logged(settings)?;
    let mut images: Vec<Image> = Vec::new();
    for directory in known::directories(settings)? {
        let is_logged = logged.contains(&directory);
        // Several paths may lead to one image.
        let directory = fs::canonicalize(&directory).unwrap_or(directory);
        // The next pull resumes an image that has arrived in part.
        let has_arrived = refuse_arriving(&directory).is_ok();
        if !has_arrived
            || !is_settled(&directory)
            || images.iter().any(|image| image.directory == directory)
        {
            continue;
        }
        if let Ok(Some(manifest)) = Manifest::read(&directory) {
            let image = Image::of(directory, manifest, &places, &mut stored);
            images.push(Image { is_logged, ..image });
        }
    }
    Ok(images)
}

impl Image {
    fn of(
        directory: PathBuf,
        manifest: Manifest,
        places: &Places,
        stored: &mut Vec<Apart>,
    ) -> Self {
        let contents = manifest.contents_apart();
        let mut ids = stored.iter().map(|apart| Some(apart.image_id));
        let at = ids.position(|id| id == contents);
        let apart = at.map(|at| stored.swap_remove(at));
        let apart_bytes = apart.as_ref().map_or(0, |apart| apart.bytes);
        Self {
            container: manifest.container,
            created_at: parsed(&manifest.created),
            created: manifest.created,
            is_logged: false,
            state: state_of(&directory, |id| places.has(id)),
            bytes: bytes_in(&directory).saturating_add(apart_bytes),
            image_id: manifest.memory.map(|memory| memory.image_id),
            apart,
            has_rest: has_rest(&directory),
            directory,
        }
    }

    /// Removes the image and its GPU contents, unless another process has begun to use it. The
    /// contents go first: as long as the manifest exists, the next try knows of the image.
    pub(super) fn remove(&self, places: &Places) -> Result<(), NotRemoved> {
        let Some(alone) = hold_alone(&self.directory)? else {
            return Err(NotRemoved::InUse);
        };
        let there = Manifest::read(&self.directory)?;
        let is_this = |there: Manifest| {
            (there.created, there.container) == (self.created.clone(), self.container.clone())
        };
        if !there.is_some_and(is_this) {
            return Err(NotRemoved::Replaced);
        }
        if let Some(apart) = &self.apart
            && places.remove(apart.image_id)? == Removed::InUse
        {
            return Err(NotRemoved::InUse);
        }
        Ok(removal::remove(&self.directory, &alone)?)
    }

    /// Removes the rest of a later checkpoint into its directory.
    pub(super) fn remove_rest(&self) -> Result<(), NotRemoved> {
        Ok(remove_rest(&self.directory)?)
    }
}

/// Why something was not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRemoved {
    #[error("an operation uses it")]
    InUse,
    #[error("another image has replaced it")]
    Replaced,
    #[error(transparent)]
    Directory(#[from] ImageDirectoryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotRemoved {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::InUse | Self::Replaced => Kind::Busy,
            Self::Directory(error) => error.kind(),
            Self::Manifest(error) => error.kind(),
            Self::Store(error) => of_store(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use stasis_engine::bulk_memory::places::of_image;
    use stasis_engine::image::manifest::StoredMemory;
    use stasis_memory_store::PacksIn;

    use super::*;
    use crate::fixtures::{node, store_holes};

    /// A push keeps the id: an image that was pulled again has that of the image that was pushed.
    #[test]
    fn contents_apart_go_with_their_image_and_not_with_another_of_their_id() {
        for (packs_in, stays) in [(PacksIn::Image, true), (PacksIn::Directory, false)] {
            let node = node();
            let image = node.directory.path().join("image");
            fs::create_dir(&image).unwrap();
            let image_id = ImageId::new(1);
            let contents = of_image(&node.apart, image_id);
            store_holes(&image, Some(contents.clone()), 1);
            let mut manifest = Manifest::new("c1", String::new(), String::new());
            manifest.memory = Some(StoredMemory { image_id, packs_in });
            manifest.write(&image).unwrap();
            let places = Places::of(&node.settings);
            let mut stored = apart::all(&node.settings).unwrap();
            let found = Image::of(image.clone(), manifest, &places, &mut stored);
            found.remove(&places).unwrap();
            let left = [image, contents].map(|directory| directory.exists());
            assert_eq!(left, [false, stays], "{packs_in:?}");
        }
    }
}
