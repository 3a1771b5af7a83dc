//! The result of a push or pull.

use std::path::PathBuf;

use serde::Serialize;

use crate::local::origin::RemoteLocation;

/// An image that was pushed or pulled.
#[derive(Debug, Serialize)]
pub struct Moved {
    /// Its directory.
    pub image: PathBuf,
    /// Its reference elsewhere.
    pub reference: String,
    /// The digest of its manifest there, which names all of it.
    pub digest: String,
    /// Bytes of all of it there.
    pub bytes: u64,
    /// Bytes of these that the receiving side lacked.
    pub moved_bytes: u64,
    /// The number of its blobs of memory.
    pub blobs: usize,
    /// The number of these that the receiving side lacked.
    pub moved_blobs: usize,
}

impl Moved {
    /// Returns its place elsewhere now.
    pub(crate) fn place(&self) -> RemoteLocation {
        RemoteLocation::new(self.reference.clone(), self.digest.clone())
    }
}
