//! `stasis memory`: lists and removes bulk memory that is stored outside of images.

pub mod flush;
pub mod prune;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{ImageId, Index, StoreError};

use crate::bulk_memory::stores::{self, Store, Stores};
use crate::bulk_memory::write_behind::lost::{self, Lost};
use crate::bulk_memory::write_behind::pending;
use crate::image::directory;

/// A store that was not written to for this long is not being written.
const CUT_OFF: Duration = Duration::from_secs(3600);

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
    /// Whether it was in memory alone when the machine restarted, so that nothing is there of it.
    pub lost: bool,
    #[serde(skip)]
    directories: Vec<PathBuf>,
    #[serde(skip)]
    idle: Duration,
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

/// Why bulk memory cannot be listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryCommandError {
    /// A store cannot be read or removed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A directory cannot be used.
    #[error("cannot use {path}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// No store has this name.
    #[error("no bulk memory here is named {0}; `stasis memory list` shows what there is")]
    None(String),
    /// Several names begin with this text.
    #[error("{0} is the beginning of several names; give more of it")]
    Several(String),
}

/// Lists all bulk memory on this machine, the oldest first.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn list(settings: &Settings) -> Result<Vec<Kept>, MemoryCommandError> {
    let stores = Stores::of(settings);
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
    let lost = lost::lost_in(&stores).map_err(MemoryCommandError::io(&stores.disk))?;
    kept.extend(lost.into_iter().map(Kept::lost));
    Ok(kept)
}

impl MemoryCommandError {
    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            path: path.clone(),
            source,
        }
    }
}

impl Kept {
    fn new(store: Store, durable: bool) -> Self {
        let Store { stored, origin } = store;
        let image_path = origin.as_ref().map(|origin| origin.image_path.clone());
        let image = image_path
            .as_deref()
            .map_or(Image::Unknown, |path| Image::at(path, stored.image_id));
        Self {
            image_id: stored.image_id,
            created: origin.as_ref().map(|origin| origin.created.clone()),
            container: origin.map(|origin| origin.container),
            bytes: stored.bytes,
            own_bytes: stored.own_bytes,
            in_ram: !durable,
            durable,
            complete: stored.complete,
            image_path,
            image,
            lost: false,
            directories: vec![stored.directory],
            idle: stored.modified.elapsed().unwrap_or_default(),
        }
    }

    fn lost(lost: Lost) -> Self {
        let Lost {
            image_id, origin, ..
        } = lost;
        Self {
            image_id,
            image: Image::at(&origin.image_path, image_id),
            container: Some(origin.container),
            created: Some(origin.created),
            bytes: 0,
            own_bytes: 0,
            in_ram: false,
            durable: false,
            complete: false,
            image_path: Some(origin.image_path),
            lost: true,
            directories: vec![lost.directory],
            idle: Duration::ZERO,
        }
    }

    /// Why no image on this machine seems to need it.
    fn is_left_over(&self) -> Option<&'static str> {
        match self.image {
            _ if self.lost => Some("it was lost when this machine restarted"),
            Image::Gone => Some("its image is gone"),
            Image::Replaced => Some("another image has its place"),
            Image::Unknown if !self.complete && self.idle > CUT_OFF => {
                Some("its checkpoint was interrupted")
            }
            Image::There | Image::Unknown => None,
        }
    }

    fn remove(&self, stores: &Stores) -> Result<(), MemoryCommandError> {
        // The one in memory first: without that on disk its copy would be pending.
        for directory in self.directories.iter().rev() {
            stasis_memory_store::remove(directory)?;
        }
        let forgotten = pending::forget(stores, self.image_id);
        forgotten.map_err(MemoryCommandError::io(&stores.disk))
    }
}

impl Image {
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

/// Removes the bulk memory whose name begins with `id`, even if an image needs it. Returns its
/// whole name.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn remove(settings: &Settings, id: &str) -> Result<ImageId, MemoryCommandError> {
    let all = list(settings)?;
    let mut named = all
        .iter()
        .filter(|kept| kept.image_id.to_string().starts_with(id));
    let kept = named
        .next()
        .ok_or_else(|| MemoryCommandError::None(id.to_owned()))?;
    if named.next().is_some() || id.is_empty() {
        return Err(MemoryCommandError::Several(id.to_owned()));
    }
    kept.remove(&Stores::of(settings))?;
    Ok(kept.image_id)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.image_id)?;
        if self.lost {
            f.write_str(" lost: it was in memory alone when this machine restarted")?;
        } else {
            let place = match (self.in_ram, self.durable) {
                (true, true) => "memory and disk",
                (true, false) => "memory only",
                _ => "disk",
            };
            write!(f, " {}", mib(self.bytes))?;
            write!(f, " ({} its own), {place}", mib(self.own_bytes))?;
            if !self.complete {
                f.write_str(", incomplete")?;
            }
        }
        if let (Some(container), Some(created)) = (&self.container, &self.created) {
            write!(f, ", container {container} at {created}")?;
        }
        if let Some(path) = &self.image_path {
            let state = match self.image {
                Image::There => "",
                Image::Replaced => " (another image is there now)",
                Image::Gone => " (not there any more)",
                Image::Unknown => " (cannot be read)",
            };
            write!(f, ", image {}{state}", path.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
