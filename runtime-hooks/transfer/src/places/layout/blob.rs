//! New blobs of a layout.

use std::fs::File;
use std::io::{self, Write};

use stasis_oci_image::digest::Hashed;
use stasis_oci_image::{Digest, OciImageError};

use super::Layout;
use super::blob_directory::BlobDirectory;
use crate::places::{NewBlob, StoreOutcome, Stored};

/// A blob that is being written. Dropping it before it is finished removes it.
#[derive(Debug)]
pub(super) struct LayoutBlob<'l> {
    layout: &'l Layout,
    written: Hashed<File>,
    /// Removes the file.
    unnamed: Unnamed<'l>,
}

/// The file of a blob that has no name yet.
#[derive(Debug)]
struct Unnamed<'l> {
    place: &'l BlobDirectory,
    name: String,
}

impl<'l> LayoutBlob<'l> {
    pub(super) fn begin(layout: &'l Layout) -> Result<Self, OciImageError> {
        let place = &layout.blobs;
        let made = place.make_file();
        let (file, name) = made.map_err(OciImageError::io("make a blob in", &place.path))?;
        Ok(Self {
            layout,
            written: Hashed::new(file),
            unnamed: Unnamed { place, name },
        })
    }
}

impl NewBlob for LayoutBlob<'_> {
    fn written(&self) -> (Digest, u64) {
        self.written.so_far()
    }

    fn finish(self: Box<Self>) -> Result<Stored, OciImageError> {
        let Unnamed { place, name } = &self.unnamed;
        let (digest, bytes, file) = self.written.end();
        let outcome = match self.layout.has(&digest, bytes) {
            true => StoreOutcome::AlreadyStored,
            false => StoreOutcome::New,
        };
        // One that was there may be damaged.
        let named = file
            .sync_all()
            .and_then(|()| place.rename(name, &digest.hex()));
        named.map_err(OciImageError::io("write a blob in", &place.path))?;
        Ok(Stored {
            digest,
            bytes,
            outcome,
        })
    }
}

impl Write for LayoutBlob<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.written.write(bytes);
        // A caller that packs files into the blob would name their directory in the error.
        let place = &self.unnamed.place.path;
        written
            .map_err(|error| io::Error::other(OciImageError::io("write a blob in", place)(error)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.written.flush()
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        // A finished blob has no file of this name; else, if this fails, the next push removes it.
        let _ = self.place.unlink(self.name.as_str());
    }
}
