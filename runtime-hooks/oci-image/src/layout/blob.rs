//! New blobs of a layout.

use std::fs::File;
use std::io::{self, Write};

use super::Layout;
use super::place::Place;
use crate::digest::Hashed;
use crate::{Digest, OciImageError};

/// A blob that is being written. Dropped before it is finished, it is gone.
#[derive(Debug)]
pub struct NewBlob<'l> {
    written: Hashed<File>,
    /// Removes it.
    unnamed: Unnamed<'l>,
}

/// The file of a blob that has no name yet.
#[derive(Debug)]
struct Unnamed<'l> {
    place: &'l Place,
    name: String,
}

/// What has become of a new blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It was there already.
    Before,
    /// It is there now.
    Now,
}

impl Layout {
    /// Begins a blob.
    ///
    /// # Errors
    /// [`OciImageError::Io`].
    pub fn new_blob(&self) -> Result<NewBlob<'_>, OciImageError> {
        let place = &self.blobs;
        let made = place.make_file();
        let (file, name) = made.map_err(OciImageError::io("make a blob in", place.path()))?;
        Ok(NewBlob {
            written: Hashed::new(file),
            unnamed: Unnamed { place, name },
        })
    }

    /// Adds a small blob: its digest and length.
    ///
    /// # Errors
    /// [`OciImageError::Io`].
    pub fn add(&self, bytes: &[u8]) -> Result<(Digest, u64), OciImageError> {
        let length = bytes.len() as u64;
        let digest = Digest::of(bytes);
        if !self.has(&digest, length) {
            let mut blob = self.new_blob()?;
            let written = blob.write_all(bytes);
            written.map_err(OciImageError::io("write a blob in", self.blobs.path()))?;
            blob.finish(self)?;
        }
        Ok((digest, length))
    }
}

impl NewBlob<'_> {
    /// Brings it to disk and gives it its name: its digest and length, and whether it was there.
    ///
    /// # Errors
    /// [`OciImageError::Io`].
    pub fn finish(self, layout: &Layout) -> Result<(Digest, u64, Kept), OciImageError> {
        let Unnamed { place, name } = &self.unnamed;
        let (digest, bytes, file) = self.written.end();
        if layout.has(&digest, bytes) {
            return Ok((digest, bytes, Kept::Before));
        }
        let named = file
            .sync_all()
            .and_then(|()| place.rename(name, &digest.hex()));
        named.map_err(OciImageError::io("write a blob in", place.path()))?;
        Ok((digest, bytes, Kept::Now))
    }
}

impl Write for NewBlob<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.written.flush()
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        // If it has its name, this one is gone; else the next push removes it.
        let _ = self.place.unlink(self.name.as_str());
    }
}
