//! Bulk memory that no image on this machine needs, for `stasis memory prune` and `stasis gc`.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use stasis_config::Settings;

use super::{MemoryCommandError, list, mib};
use crate::bulk_memory::in_use::Removed;
use crate::bulk_memory::kept::Kept;
use crate::bulk_memory::retention::{CUT_OFF, excess, why_left_over};
use crate::bulk_memory::stores::{self, Stores};
use crate::cli::answer::name;

/// Bulk memory that is not to be kept.
#[derive(Debug)]
pub struct LeftOver {
    pub(crate) what: What,
    /// Why not.
    pub(crate) why: &'static str,
}

/// Where it is.
#[derive(Debug)]
pub(crate) enum What {
    /// A whole store.
    Store(Box<Kept>),
    /// A copy to disk that was interrupted.
    Copy(PathBuf),
}

/// Finds bulk memory that no image on this machine needs.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn left_over(settings: &Settings) -> Result<Vec<LeftOver>, MemoryCommandError> {
    let stores = list(settings)?.into_iter();
    let mut found: Vec<LeftOver> = stores
        .filter_map(|kept| Some(LeftOver::store(why_left_over(&kept)?, kept)))
        .collect();
    found.extend(interrupted_copies(settings)?);
    Ok(found)
}

/// The same, and what is more than the settings keep.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn prunable(settings: &Settings) -> Result<Vec<LeftOver>, MemoryCommandError> {
    let (left_over, needed): (Vec<_>, Vec<_>) = list(settings)?
        .into_iter()
        .partition(|kept| why_left_over(kept).is_some());
    let excess = excess(&needed, &settings.bulk_memory).into_iter();
    let excess: HashMap<_, _> = excess.map(|(kept, why)| (kept.image_id, why)).collect();
    let stores = left_over.into_iter().chain(needed);
    let mut found: Vec<LeftOver> = stores
        .filter_map(|kept| {
            let why = why_left_over(&kept).or_else(|| excess.get(&kept.image_id).copied())?;
            Some(LeftOver::store(why, kept))
        })
        .collect();
    found.extend(interrupted_copies(settings)?);
    Ok(found)
}

fn interrupted_copies(settings: &Settings) -> Result<Vec<LeftOver>, MemoryCommandError> {
    let stores = Stores::of(settings);
    let partial = stores::partial_in(&stores.disk).map_err(MemoryCommandError::io(&stores.disk))?;
    let interrupted = partial.into_iter().filter(|(path, modified)| {
        modified.elapsed().unwrap_or_default() > CUT_OFF && !is_pending(&stores, path)
    });
    let interrupted = interrupted.map(|(path, _)| LeftOver {
        what: What::Copy(path),
        why: "its copy was interrupted",
    });
    Ok(interrupted.collect())
}

impl LeftOver {
    fn store(why: &'static str, kept: Kept) -> Self {
        let what = What::Store(Box::new(kept));
        Self { what, why }
    }

    /// The container, if known.
    pub(crate) fn container(&self) -> Option<&str> {
        match &self.what {
            What::Store(kept) => kept.container.as_deref(),
            What::Copy(_) => None,
        }
    }

    /// Removes it, if nobody uses it.
    ///
    /// # Errors
    /// [`MemoryCommandError`].
    pub(crate) fn remove(&self, settings: &Settings) -> Result<Removed, MemoryCommandError> {
        match &self.what {
            What::Store(kept) => Ok(kept.remove(&Stores::of(settings))?),
            What::Copy(path) => {
                fs::remove_dir_all(path).map_err(MemoryCommandError::io(path))?;
                Ok(Removed::Yes)
            }
        }
    }
}

impl fmt::Display for LeftOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = self.why;
        match &self.what {
            What::Store(kept) => {
                write!(f, "{} {}: {why}", kept.image_id, mib(kept.own_bytes))?;
                match &kept.image_path {
                    Some(path) => write!(f, " ({})", name(&path.display())),
                    None => Ok(()),
                }
            }
            What::Copy(path) => write!(f, "{}: {why}", name(&path.display())),
        }
    }
}

/// Whether a copy is still to be completed: its store is in memory.
fn is_pending(stores: &Stores, partial: &Path) -> bool {
    let in_ram = partial.file_stem().map(|id| stores.ram.join(id));
    in_ram.is_some_and(|in_ram| in_ram.is_dir())
}
