//! Blobs on their way to where registries' images are, counted.

use std::io::Write;

use stasis_memory_store::{BlobDigest, Gathered, NewBlobs, encode_contents};
use stasis_oci_image::elsewhere::{Kept, Stored};
use stasis_oci_image::{Digest, Elsewhere, Kind, NewBlob, OciImageError};

use crate::cli::command_error::MoveError;

/// A layer of the manifest.
pub(super) type Layer = (Kind, Digest, u64);

/// Writes blobs, and counts them.
pub(super) struct Outgoing<'p> {
    place: &'p dyn Elsewhere,
    growing: Option<Box<dyn NewBlob + 'p>>,
    pub(super) moved_bytes: u64,
    pub(super) moved_blobs: usize,
}

impl<'p> Outgoing<'p> {
    pub(super) fn new(place: &'p dyn Elsewhere) -> Self {
        Self {
            place,
            growing: None,
            moved_bytes: 0,
            moved_blobs: 0,
        }
    }

    fn count(&mut self, stored: &Stored) {
        if stored.kept == Kept::Now {
            self.moved_bytes += stored.bytes;
        }
    }

    /// Adds a small blob.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(Digest, u64), MoveError> {
        let stored = self.place.put(bytes)?;
        self.count(&stored);
        Ok((stored.digest, stored.bytes))
    }

    /// Adds a blob of what `write` writes.
    pub(super) fn stream(
        &mut self,
        kind: Kind,
        write: impl FnOnce(&mut dyn Write) -> Result<(), MoveError>,
    ) -> Result<Layer, MoveError> {
        let mut blob = self.place.new_blob()?;
        write(&mut blob)?;
        let stored = blob.finish()?;
        self.count(&stored);
        Ok((kind, stored.digest, stored.bytes))
    }

    /// Adds the lists of bulk memory.
    pub(super) fn add_lists(&mut self, memory: &Gathered) -> Result<[Layer; 2], MoveError> {
        let (index, bytes) = self.add(&memory.index.encode())?;
        let (contents, length) = self.add(&encode_contents(&memory.blobs))?;
        Ok([
            (Kind::Index, index, bytes),
            (Kind::Contents, contents, length),
        ])
    }

    fn growing(&mut self) -> Result<Box<dyn NewBlob + 'p>, OciImageError> {
        self.growing
            .take()
            .map_or_else(|| self.place.new_blob(), Ok)
    }
}

impl NewBlobs for Outgoing<'_> {
    type Error = MoveError;

    fn append(&mut self, bytes: &[u8]) -> Result<(), MoveError> {
        let mut blob = self.growing()?;
        let written = blob.write_all(bytes);
        written.map_err(MoveError::io("write a blob of", self.place.name().as_ref()))?;
        self.growing = Some(blob);
        Ok(())
    }

    fn end(&mut self) -> Result<BlobDigest, MoveError> {
        let stored = self.growing()?.finish()?;
        self.count(&stored);
        if stored.kept == Kept::Now {
            self.moved_blobs += 1;
        }
        Ok(*stored.digest.bytes())
    }
}
