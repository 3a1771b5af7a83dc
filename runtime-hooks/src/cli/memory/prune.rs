//! `stasis memory prune`: removes bulk memory that no image on this machine needs.

use std::fs;
use std::path::Path;

use stasis_config::Settings;

use super::{MemoryCommandError, list, mib};
use crate::bulk_memory::in_use::Removed;
use crate::bulk_memory::kept::Kept;
use crate::bulk_memory::retention::{CUT_OFF, excess, why_left_over};
use crate::bulk_memory::stores::{self, Stores};
use crate::cli::answer::name;

/// Whether unneeded bulk memory is listed or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// List it.
    Show,
    /// Remove it.
    Remove,
}

/// Finds bulk memory that no image on this machine needs, or that is more than the settings keep;
/// returns one line for each store.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn prune(settings: &Settings, what: Prune) -> Result<Vec<String>, MemoryCommandError> {
    let stores = Stores::of(settings);
    let mut lines = Vec::new();
    let (left_over, needed): (Vec<_>, Vec<_>) = list(settings)?
        .into_iter()
        .partition(|kept| why_left_over(kept).is_some());
    let left_over = left_over
        .iter()
        .filter_map(|kept| Some((kept, why_left_over(kept)?)));
    for (kept, why) in left_over.chain(excess(&needed, &settings.bulk_memory)) {
        let removed = match what {
            Prune::Show => Removed::Yes,
            Prune::Remove => kept.remove(&stores)?,
        };
        lines.push(line(kept, why, removed));
    }
    let io = MemoryCommandError::io(&stores.disk);
    for (path, modified) in stores::partial_in(&stores.disk).map_err(&io)? {
        if modified.elapsed().unwrap_or_default() <= CUT_OFF || is_pending(&stores, &path) {
            continue;
        }
        if what == Prune::Remove {
            fs::remove_dir_all(&path).map_err(&io)?;
        }
        lines.push(format!(
            "{}: its copy was interrupted",
            name(&path.display())
        ));
    }
    Ok(lines)
}

fn line(kept: &Kept, why: &str, removed: Removed) -> String {
    let (id, bytes) = (kept.image_id, mib(kept.own_bytes));
    let place = kept.image_path.as_deref();
    let place = place.map(|path| format!(" ({})", name(&path.display())));
    let stays = match removed {
        Removed::Yes => "",
        Removed::InUse => "; it stays for now, since it is in use",
    };
    format!("{id} {bytes}: {why}{}{stays}", place.unwrap_or_default())
}

/// Whether a copy is still to be completed: its store is in memory.
fn is_pending(stores: &Stores, partial: &Path) -> bool {
    let in_ram = partial.file_stem().map(|id| stores.ram.join(id));
    in_ram.is_some_and(|in_ram| in_ram.is_dir())
}
