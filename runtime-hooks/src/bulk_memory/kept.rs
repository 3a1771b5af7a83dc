//! What is stored outside of images, on disk and in memory, and the images that it belongs to.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stasis_linux::file::Durability;
use stasis_memory_store::{ImageId, Index, StoreError};

use crate::bulk_memory::in_use::{self, Removed};
use crate::bulk_memory::lost::{self, Lost};
use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::pending;
use crate::bulk_memory::stores::{self, Store, Stores};
use crate::image::directory;

/// The bulk memory of one checkpoint.
#[derive(Debug, Serialize)]
pub struct Kept {
    /// Its id.
    pub image_id: ImageId,
    /// The container, if known.
    pub container: Option<String>,
    /// When the checkpoint began.
    pub created: Option<String>,
    /// Its size on disk, or in memory if it is only there.
    pub bytes: u64,
    /// The part of it that no other checkpoint uses.
    pub own_bytes: u64,
    /// Whether it is in memory.
    pub in_ram: bool,
    /// Whether it is on disk.
    pub durable: bool,
    /// Whether all of it is there: otherwise its operation was interrupted, or is under way.
    pub complete: bool,
    /// The path of the image.
    pub image_path: Option<PathBuf>,
    /// The image at that path now.
    pub image: Image,
    /// Whether the image may have gone elsewhere, so that its absence means nothing.
    pub exported: bool,
    /// Whether it was in memory alone when the machine restarted, so that nothing is there of it.
    pub lost: bool,
    /// For how long nobody has written to it.
    #[serde(skip)]
    pub(crate) idle: Duration,
    #[serde(skip)]
    pub(crate) origin: Option<Origin>,
    #[serde(skip)]
    pub(crate) directories: Vec<PathBuf>,
}

/// The image at the path where a checkpoint wrote its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Image {
    /// The checkpoint's image.
    There,
    /// Another image.
    Replaced,
    /// No image.
    Gone,
    /// The path is not known, or cannot be read.
    Unknown,
}

/// All bulk memory on this machine, the oldest first; what was lost at the end.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn all(stores: &Stores) -> Result<Vec<Kept>, StoreError> {
    let mut kept: Vec<Kept> = Vec::new();
    // The disk first: a store on disk and in memory is described by its copy on disk.
    for (parent, durable) in [(&stores.disk, true), (&stores.ram, false)] {
        for store in stores::all_in(parent)? {
            let known = kept
                .iter_mut()
                .find(|kept| kept.image_id == store.stored.image_id);
            match known {
                Some(known) => {
                    known.in_ram = true;
                    known.directories.push(store.stored.directory);
                }
                None => kept.push(Kept::new(store, durable)),
            }
        }
    }
    kept.sort_by_key(Kept::completed_ns);
    kept.iter_mut().for_each(Kept::settle);
    let lost = lost::lost_in(stores).map_err(failed("read", &stores.disk))?;
    kept.extend(lost.into_iter().map(Kept::lost));
    Ok(kept)
}

impl Kept {
    fn new(store: Store, durable: bool) -> Self {
        let Store { stored, origin } = store;
        let image = origin
            .as_ref()
            .map_or(Image::Unknown, |origin| Image::of(origin, stored.image_id));
        Self {
            image_id: stored.image_id,
            created: origin.as_ref().map(|origin| origin.created.clone()),
            container: origin.as_ref().map(|origin| origin.container.clone()),
            bytes: stored.bytes,
            own_bytes: stored.own_bytes,
            in_ram: !durable,
            durable,
            complete: stored.complete,
            image_path: origin.as_ref().map(|origin| origin.image_path.clone()),
            image,
            exported: origin.as_ref().is_some_and(|origin| origin.exported),
            lost: false,
            idle: stored.modified.elapsed().unwrap_or_default(),
            origin,
            directories: vec![stored.directory],
        }
    }

    fn lost(lost: Lost) -> Self {
        let Lost {
            image_id,
            origin,
            directory,
        } = lost;
        Self {
            image_id,
            container: Some(origin.container.clone()),
            created: Some(origin.created.clone()),
            bytes: 0,
            own_bytes: 0,
            in_ram: false,
            durable: false,
            complete: false,
            image_path: Some(origin.image_path.clone()),
            image: Image::of(&origin, image_id),
            exported: origin.exported,
            lost: true,
            idle: Duration::ZERO,
            origin: Some(origin),
            directories: vec![directory],
        }
    }

    /// The newest has the largest; what is not known counts as new.
    pub(crate) fn completed_ns(&self) -> u64 {
        let origin = self.origin.as_ref();
        origin.map_or(u64::MAX, |origin| origin.completed_ns)
    }

    /// Records that the image is where it was written, long after it was.
    fn settle(&mut self) {
        let Some(origin) = &mut self.origin else {
            return;
        };
        if self.image == Image::There && !origin.settled && origin.is_old() {
            origin.settled = true;
            for directory in &self.directories {
                // Whoever looks next finds it there, too.
                let _ = origin.write(directory, Durability::Volatile);
            }
        }
    }

    /// Removes it, if nobody uses it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn remove(&self, stores: &Stores) -> Result<Removed, StoreError> {
        // The one in memory first: without that on disk its copy would be pending.
        for directory in self.directories.iter().rev() {
            if in_use::remove(directory)? == Removed::InUse {
                return Ok(Removed::InUse);
            }
        }
        let forgotten = pending::forget(stores, self.image_id);
        forgotten.map_err(failed("remove the copy in", &stores.disk))?;
        Ok(Removed::Yes)
    }
}

impl Image {
    fn of(origin: &Origin, image_id: ImageId) -> Self {
        match Self::at(&origin.image_path, image_id) {
            // It may have been on its way from one place to the next.
            Self::Replaced => Self::at(&origin.image_path, image_id),
            found => found,
        }
    }

    fn at(path: &Path, image_id: ImageId) -> Self {
        let mut found = Self::Gone;
        for place in directory::places(path) {
            match Index::read(&place) {
                Ok(Some(index)) if index.image_id == image_id => return Self::There,
                Ok(Some(_)) if found == Self::Gone => found = Self::Replaced,
                Ok(_) => {}
                Err(_) => found = Self::Unknown,
            }
        }
        found
    }
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io {
        action,
        path: path.clone(),
        source,
    }
}
