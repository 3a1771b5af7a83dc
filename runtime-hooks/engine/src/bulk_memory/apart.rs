//! GPU contents that lie apart from their images, and where those images are.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stasis_config::Settings;
use stasis_host::time::parsed;
use stasis_linux::file;
use stasis_memory_store::{ImageId, ImagePlace, Index, StoreError};

use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::places::{self, Places, Store};
use crate::bulk_memory::request::stores;
use crate::image::directory;
use crate::operation::directories;

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
    /// Whether no operation writes them any more.
    settled: bool,
}

/// All contents apart from images on this node, in the order of their checkpoints.
pub fn all(settings: &Settings) -> Result<Vec<Apart>, StoreError> {
    let places = Places::of(settings);
    let Some(parent) = &places.apart else {
        return Ok(Vec::new());
    };
    // In this order: an operation writes its request before it makes the store, and removes it when
    // the store has its index and its origin.
    let failed = |path: &Path| StoreError::io("read", path);
    let begun = paths_in(parent).map_err(failed(parent))?;
    let state_dir = &settings.paths.state_dir;
    let requested = requested(state_dir).map_err(failed(state_dir))?;
    let mut all: Vec<_> = places::all_in(parent)?.into_iter().map(Apart::of).collect();
    for apart in &mut all {
        let was_there = begun.contains(&apart.directory);
        apart.settled = was_there && !requested.contains(&apart.directory);
    }
    Ok(all)
}

fn paths_in(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = file::entries(parent)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// The stores of all operations that are under way or interrupted.
fn requested(state_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut requested = Vec::new();
    for directory in directories(state_dir)? {
        requested.extend(stores(&directory)?);
    }
    Ok(requested)
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
            settled: false,
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
            _ if !self.settled => None,
            _ if !self.complete => Some("their checkpoint was interrupted"),
            Some(ImagePlace::At(_)) => None,
            Some(ImagePlace::OfAnother) => Some("another image is where theirs was written"),
            Some(ImagePlace::Nowhere) => Some("their image is not where it was written"),
            None | Some(ImagePlace::Unknown(_)) => {
                Some("it is not known where their image was written")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, FileTimes};

    use crate::bulk_memory::places::tests::fixtures::{node, request, store_holes};
    use crate::bulk_memory::places::tests::store;
    use crate::bulk_memory::request::RequestFiles;
    use crate::operation::directory_of;

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
            let all = all(&node.settings).unwrap();
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
    }

    /// A disk may take hours for the memory of eight GPUs.
    #[test]
    fn contents_that_an_operation_requests_are_not_orphaned_however_old_they_are() {
        let node = node();
        let parts = [1, 2].map(|id| places::of_image(&node.apart, ImageId::new(id)));
        let long_ago = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
        for part in &parts {
            fs::create_dir(part).unwrap();
            File::open(part).unwrap().set_times(long_ago).unwrap();
        }
        let operation = directory_of(&node.settings.paths.state_dir, Path::new("/run"), "c1");
        fs::create_dir_all(&operation).unwrap();
        let files = RequestFiles::of_staged(&operation);
        let directory = Some(parts[0].clone());
        files.write(&request(directory, 1)).unwrap();
        let orphaned = || -> Vec<_> {
            let mut all = all(&node.settings).unwrap();
            all.retain(|apart| apart.why_orphaned().is_some());
            all.iter().map(|apart| apart.image_id).collect()
        };
        assert_eq!(orphaned(), [ImageId::new(2)]);
        drop(files);
        assert_eq!(orphaned(), [1, 2].map(ImageId::new));
    }
}
