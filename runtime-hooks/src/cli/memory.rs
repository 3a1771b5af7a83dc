//! `stasis memory`: lists and removes bulk memory that is stored outside of images.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stasis_config::Settings;
use stasis_memory_store::{ImageId, Index, StoreError};

use crate::bulk_memory::stores::{self, Store, Stores};
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
    Ok(kept)
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
            directories: vec![stored.directory],
            idle: stored.modified.elapsed().unwrap_or_default(),
        }
    }

    /// Why no image on this machine seems to need it.
    fn is_left_over(&self) -> Option<&'static str> {
        match self.image {
            Image::Gone => Some("its image is gone"),
            Image::Replaced => Some("another image has its place"),
            Image::Unknown if !self.complete && self.idle > CUT_OFF => {
                Some("its checkpoint was interrupted")
            }
            Image::There | Image::Unknown => None,
        }
    }

    fn remove(&self) -> Result<(), MemoryCommandError> {
        for directory in &self.directories {
            stores::remove(directory)?;
        }
        Ok(())
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
    kept.remove()?;
    Ok(kept.image_id)
}

/// Whether unneeded bulk memory is listed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// List it.
    Show,
    /// Remove it.
    Remove,
}

/// Finds bulk memory that no image on this machine needs; returns one line for each store.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn prune(settings: &Settings, what: Prune) -> Result<Vec<String>, MemoryCommandError> {
    let mut lines = Vec::new();
    for kept in list(settings)? {
        let Some(why) = kept.is_left_over() else {
            continue;
        };
        if what == Prune::Remove {
            kept.remove()?;
        }
        let place = kept
            .image_path
            .as_deref()
            .map(|path| format!(" ({})", path.display()));
        lines.push(format!(
            "{} {}: {why}{}",
            kept.image_id,
            mib(kept.own_bytes),
            place.unwrap_or_default()
        ));
    }
    let disk = &Stores::of(settings).disk;
    let io = |source| MemoryCommandError::Io {
        path: disk.clone(),
        source,
    };
    for (path, modified) in stores::partial_in(disk).map_err(io)? {
        if modified.elapsed().unwrap_or_default() > CUT_OFF {
            if what == Prune::Remove {
                fs::remove_dir_all(&path).map_err(io)?;
            }
            lines.push(format!("{}: its copy was interrupted", path.display()));
        }
    }
    Ok(lines)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match (self.in_ram, self.durable) {
            (true, true) => "memory and disk",
            (true, false) => "memory only",
            _ => "disk",
        };
        write!(f, "{} {}", self.image_id, mib(self.bytes))?;
        write!(f, " ({} its own), {place}", mib(self.own_bytes))?;
        if !self.complete {
            f.write_str(", incomplete")?;
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
