//! What there is of images elsewhere, whether in a directory or behind a registry.

use std::io::{Read, Write};

use crate::{Descriptor, Digest, Manifest, OciImageError};

/// A place with images of ours.
pub trait Elsewhere: Sync {
    /// What to call it in messages.
    fn name(&self) -> String;

    /// The manifest of a tag or digest, and its digest.
    fn manifest(&self, tag: &str) -> Result<(Manifest, Digest), OciImageError>;

    /// What a tag or digest names, be it ours or another's image.
    fn describe(&self, tag: &str) -> Result<Descriptor, OciImageError>;

    /// Images of ours that are there, at most so many: what a new one for the tag is likely to have
    /// parts of. One that cannot be read is none.
    fn images(&self, tag: &str, most: usize) -> Result<Vec<Manifest>, OciImageError>;

    /// Makes sure that the blobs of an image are there, as far as that costs little.
    fn expect(&self, image: &Manifest) -> Result<(), OciImageError>;

    /// Whether a blob is there that an image named.
    fn still_has(&self, digest: &Digest, bytes: u64) -> bool;

    /// Reads what is behind the first `at` bytes of a blob, of which no more than its length comes.
    /// Its digest is the caller's to compare.
    fn reader(&self, blob: &Descriptor, at: u64) -> Result<Box<dyn Read + '_>, OciImageError>;

    /// Begins a blob.
    fn new_blob(&self) -> Result<Box<dyn NewBlob + '_>, OciImageError>;

    /// Adds a small blob.
    fn put(&self, bytes: &[u8]) -> Result<Stored, OciImageError>;

    /// Adds a manifest whose blobs are all there, under a tag that another may have had. If it
    /// fails, the tag is what it was.
    fn tag(&self, tag: &str, manifest: &Manifest) -> Result<Digest, OciImageError>;

    /// All of a blob, verified.
    fn read(&self, blob: &Descriptor, most: u64) -> Result<Vec<u8>, OciImageError> {
        if blob.size > most {
            let what = format!("it has {} bytes, and may have {most}", blob.size);
            return Err(OciImageError::blob(blob.digest, what));
        }
        let mut bytes = Vec::new();
        let read = self.reader(blob, 0)?.read_to_end(&mut bytes);
        read.map_err(|error| OciImageError::of_io(error, "read a blob of", self.name().as_ref()))?;
        match Digest::of(&bytes) == blob.digest {
            true => Ok(bytes),
            false => Err(OciImageError::blob(
                blob.digest,
                "its bytes have another digest",
            )),
        }
    }
}

/// A blob that is being written. Dropped before it is finished, it is gone.
pub trait NewBlob: Write + Send {
    /// The digest and length of what was written.
    fn written(&self) -> (Digest, u64);

    /// Gives it its name.
    fn finish(self: Box<Self>) -> Result<Stored, OciImageError>;
}

/// A blob that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub digest: Digest,
    /// Its length.
    pub bytes: u64,
    /// Since when.
    pub kept: Kept,
}

/// What has become of a new blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It was there already.
    Before,
    /// It is there now.
    Now,
}
