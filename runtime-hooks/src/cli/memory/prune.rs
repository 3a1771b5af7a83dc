//! `stasis memory prune`: removes bulk memory that no image on this machine needs.

use std::fs;
use std::path::Path;

use stasis_config::Settings;

use super::{CUT_OFF, MemoryCommandError, list, mib};
use crate::bulk_memory::stores::{self, Stores};

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
    let stores = Stores::of(settings);
    let mut lines = Vec::new();
    for kept in list(settings)? {
        let Some(why) = kept.is_left_over() else {
            continue;
        };
        if what == Prune::Remove {
            kept.remove(&stores)?;
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
    let io = MemoryCommandError::io(&stores.disk);
    for (path, modified) in stores::partial_in(&stores.disk).map_err(&io)? {
        if modified.elapsed().unwrap_or_default() <= CUT_OFF || is_pending(&stores, &path) {
            continue;
        }
        if what == Prune::Remove {
            fs::remove_dir_all(&path).map_err(&io)?;
        }
        lines.push(format!("{}: its copy was interrupted", path.display()));
    }
    Ok(lines)
}

/// Whether a copy is still to be completed: its store is in memory.
fn is_pending(stores: &Stores, partial: &Path) -> bool {
    let in_ram = partial.file_stem().map(|id| stores.ram.join(id));
    in_ram.is_some_and(|in_ram| in_ram.is_dir())
}
