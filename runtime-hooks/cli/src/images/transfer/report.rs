//! The report of a push or pull.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::answer::amount::size;
use crate::answer::name;
use crate::images::origin::RemoteLocation;

/// An image that was pushed or pulled.
#[derive(Debug, Serialize)]
pub(super) struct Moved {
    /// Its directory.
    pub(super) image: PathBuf,
    /// Its reference elsewhere.
    pub(super) reference: String,
    /// The digest of its manifest there, which names all of it.
    pub(super) digest: String,
    /// Bytes of all of it there.
    pub(super) bytes: u64,
    /// Bytes of these that the receiving side lacked.
    pub(super) moved_bytes: u64,
    /// The number of its blobs of memory.
    pub(super) blobs: usize,
    /// The number of these that the receiving side lacked.
    pub(super) moved_blobs: usize,
}

/// Returns its place elsewhere now.
pub(super) fn place_of(moved: &Moved) -> RemoteLocation {
    RemoteLocation::new(moved.reference.clone(), moved.digest.clone())
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (image, reference) = (name(&self.image.display()), name(&self.reference));
        writeln!(f, "image {image}, {reference}, {}", self.digest)?;
        let (bytes, moved) = (size(self.bytes), size(self.moved_bytes));
        write!(
            f,
            "  {moved} of {bytes} moved, {} of {} blobs of memory",
            self.moved_blobs, self.blobs
        )
    }
}
