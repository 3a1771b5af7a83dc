//! `stasis memory`: lists and removes bulk memory that is stored outside of images.

pub mod command;
pub mod flush;
mod outcome;
pub mod prune;
pub mod verify;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_memory_store::{ImageId, StoreError};

use crate::bulk_memory::in_use::Removed;
use crate::bulk_memory::kept::{self, Image, Kept};
use crate::bulk_memory::stores::Stores;
use crate::cli::answer::name;

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
    /// The answer cannot be written.
    #[error("cannot write the answer")]
    Answer(#[from] io::Error),
    /// No store has this name.
    #[error("no bulk memory here is named {0}; `stasis memory list` shows what there is")]
    None(String),
    /// Several names begin with this text.
    #[error("{0} is the beginning of several names; give more of it")]
    Several(String),
    /// Somebody uses it.
    #[error("a restore, or a copy to disk, uses bulk memory {0}; try again when it is over")]
    InUse(ImageId),
}

/// Lists all bulk memory on this machine, the oldest first.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn list(settings: &Settings) -> Result<Vec<Kept>, MemoryCommandError> {
    Ok(kept::all(&Stores::of(settings))?)
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
    match kept.remove(&Stores::of(settings))? {
        Removed::Yes => Ok(kept.image_id),
        Removed::InUse => Err(MemoryCommandError::InUse(kept.image_id)),
    }
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
            write!(f, ", container {} at {}", name(container), name(created))?;
        }
        if let Some(path) = &self.image_path {
            let state = match self.image {
                Image::There => "",
                Image::Replaced => " (another image is there now)",
                Image::Gone if self.exported => " (exported from there)",
                Image::Gone => " (not there any more)",
                Image::Unknown => " (cannot be read)",
            };
            write!(f, ", image {}{state}", name(&path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
