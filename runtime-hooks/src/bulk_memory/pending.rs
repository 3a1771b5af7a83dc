//! Which copies are pending.
//!
//! A store that is complete in memory and is not on disk is pending, and its directory with the
//! suffix `partial` on disk has its origin from before the checkpoint is reported as good: so a
//! machine that has restarted knows what it has lost.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use stasis_linux::file::{self, Durability};
use stasis_memory_store::{ImageId, ORIGIN_FILE, STORE_INDEX_FILE};

use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::stores::{self, Stores};

/// A store in memory that is to be on disk, too.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) image_id: ImageId,
    pub(crate) origin: Origin,
    /// Its directory in memory.
    pub(crate) from: PathBuf,
}

/// All pending copies, the oldest first.
///
/// # Errors
/// The I/O error.
pub(crate) fn pending_in(stores: &Stores) -> io::Result<Vec<Pending>> {
    let mut found = Vec::new();
    for (name, from) in stores::names_in(&stores.ram)? {
        let Ok(image_id) = name.parse::<ImageId>() else {
            continue;
        };
        // One without an index is being written.
        let is_whole = from.join(STORE_INDEX_FILE).exists();
        if !is_whole || stores.is_on_disk(image_id) {
            continue;
        }
        if let Some(origin) = Origin::read(&from) {
            found.push(Pending {
                image_id,
                origin,
                from,
            });
        }
    }
    found.sort_by_key(|pending| pending.origin.completed_ns);
    Ok(found)
}

/// Records on disk that the copy of a store is pending; the record is durable on return.
///
/// # Errors
/// The I/O error.
pub(crate) fn record(stores: &Stores, id: ImageId, origin: &Origin) -> io::Result<()> {
    stores::prepare(&stores.disk)?;
    let partial = stores.partial_of(id);
    match DirBuilder::new().mode(0o700).create(&partial) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !partial.join(ORIGIN_FILE).exists() {
        origin.write(&partial, Durability::Durable)?;
        file::sync_directory(&stores.disk)?;
    }
    Ok(())
}

/// Removes the record, and what is there of the copy.
///
/// # Errors
/// The I/O error.
pub(crate) fn forget(stores: &Stores, id: ImageId) -> io::Result<()> {
    match fs::remove_dir_all(stores.partial_of(id)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
