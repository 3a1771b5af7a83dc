//! The directory of an image: its content, and who may change it.
//!
//! A writer writes into a directory of its own below it, `.stasis-new`, and one rename makes that
//! the directory's image. `docs/internals/image-format.md` has all states, who may do what in each
//! of them, and who mends what a crash leaves.

mod begin;
mod commit;
mod error;
pub mod in_use;
mod lock;
mod move_up;
mod open;
pub mod removal;
mod rest;
mod step;
mod whole;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use stasis_linux::file_system::FileSystem;
use stasis_memory_store::INDEX_FILE;

use crate::image::manifest;

pub(crate) use commit::Committed;
pub use error::ImageDirectoryError;
pub use open::{Opened, current, open};
pub use rest::{
    Rest, disown, finish, give_up, has_rest, is_being_written, is_settled, remove_rest,
};

/// The file that CRIU writes last.
pub const INVENTORY: &str = "inventory.img";
/// The directory that a writer writes into.
const NEW: &str = ".stasis-new";
/// An image that is committed, and not moved up yet.
const COMPLETE: &str = ".stasis-complete";
/// A committed image of which some files are moved up.
const MOVING: &str = ".stasis-moving";
/// Names the boot whose page cache vouches for the files of a new image.
const BOOT: &str = ".stasis-boot";
/// Names the shared outcome on which a new image depends.
const SHARED: &str = ".stasis-group";
/// Far more than either of them has.
const MAX_SIGN_BYTES: u64 = 1 << 10;
/// CRIU's link from an image to the one before it.
pub const PARENT: &str = "parent";
/// The record of the place that an image was pulled from.
pub const ORIGIN: &str = "stasis-origin.json";

/// An image that is being written. No other process writes into its directory meanwhile.
#[derive(Debug)]
pub struct NewImage {
    directory: PathBuf,
    /// Opened before anything was written ([`FileSystem::sync`]).
    file_system: FileSystem,
    staging: PathBuf,
    /// The lock on `staging`.
    lock: File,
    /// Whether the decision on a shared outcome commits the image.
    shares_outcome: bool,
}

impl NewImage {
    /// Returns the directory that the image belongs into.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the directory into which it is written.
    pub(crate) fn path(&self) -> &Path {
        &self.staging
    }

    /// Returns the lock: a process that has it open keeps others from the image.
    pub(crate) fn lock(&self) -> &File {
        &self.lock
    }

    /// Whether the decision on a shared outcome commits it.
    pub(crate) fn shares_outcome(&self) -> bool {
        self.shares_outcome
    }
}

/// Whether a directory has, or gets, an image of ours.
pub fn is_ours(directory: &Path) -> bool {
    let ours = [manifest::FILE_NAME, INDEX_FILE, NEW, COMPLETE, MOVING];
    ours.iter().any(|name| exists(&directory.join(name)))
}

/// Whether CRIU has written all of an image.
pub fn has_inventory(image: &Path) -> bool {
    find_inventory(image).unwrap_or(false)
}

fn find_inventory(image: &Path) -> io::Result<bool> {
    match image.join(INVENTORY).symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found.map(|inventory| inventory.is_file() && inventory.len() > 0),
    }
}

/// Returns the places of an image in a directory, in the order in which it gets there.
pub(crate) fn places(directory: &Path) -> [PathBuf; 4] {
    let below = |name| directory.join(name);
    [
        below(NEW),
        below(COMPLETE),
        below(MOVING),
        directory.to_owned(),
    ]
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ImageDirectoryError {
    let path = path.to_owned();
    move |source| ImageDirectoryError::Io {
        action,
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests;
